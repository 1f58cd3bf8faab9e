package policy

import "fmt"

// finch keeps what the question at the end of the prompt attends to (Corallo & Papotti 2024, TACL 12; kvpress's FinchPress). The
// question is the last window_size tokens. A token's score is the mean over the question's queries of their softmax weight times the
// number of tokens before them, averaged over the heads of the group, without snapkv's pooling; the question stays. With chunk_length
// each chunk of the prompt keeps its own part of the budget.
//
// With rerotate_keys what stays stands side by side afterwards: the keys are rotated as if their tokens had followed one another. kvpress
// counts them from 0 and goes on behind the last; here they end where the prompt ends, and what follows goes on from there. Distances,
// which is all that rotary embedding sees, are the same.
type finch struct {
	scored
	window, chunk       int
	normalise, rerotate bool
}

func init() {
	register(Info{
		Name:    "finch",
		Summary: "keeps what the question at the prompt's end reads, closes the gaps",
		Paper:   "FINCH: Prompt-guided Key-Value Cache Compression for Large Language Models, TACL 12 (2024), arXiv 2408.00167",
		Phase:   PhasePrompt,
		Params: append(budgetParams("50%"),
			Param{Name: "window_size", Aliases: []string{"window", "question"}, Default: "32", Doc: "tokens of the question at the prompt's end; they vote, and stay"},
			Param{Name: "chunk_length", Default: "0", Doc: "tokens of a chunk that keeps its own part of the budget; 0 = the prompt is one"},
			Param{Name: "normalize_scores", Default: "true", Doc: "multiply a query's weights by the number of tokens before it"},
			Param{Name: "rerotate_keys", Default: "true", Doc: "rotate what stays to positions that follow one another"}),
	}, newFinch)
}

func newFinch(a *args) Policy {
	p := &finch{scored: scored{base: a.base(), budget: a.budget()}, window: a.int("window_size", 1, maxTokens), chunk: a.int("chunk_length", 0, maxTokens),
		normalise: a.bool("normalize_scores"), rerotate: a.bool("rerotate_keys")}
	if p.chunk > 0 && !p.budget.proportional() {
		a.errs = append(a.errs, fmt.Errorf("policy: finch: chunk_length=%d: each chunk keeps a part of itself: want a ratio or a share as budget, not %s: %w", p.chunk, p.budget, ErrParam))
	} else if p.chunk > 0 && p.budget.Tokens(p.chunk, 0) < p.window {
		a.errs = append(a.errs, fmt.Errorf("policy: finch: chunk_length=%d keeps %d tokens, fewer than the question's window_size=%d: %w", p.chunk, p.budget.Tokens(p.chunk, 0), p.window, ErrParam))
	}
	return p
}

func (p *finch) Needs() Needs {
	return Needs{PromptSums: p.window, PromptRows: p.normalise, OwnChannels: p.rerotate}
}

func (p *finch) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// ClosesGaps implements KeyMover.
func (p *finch) ClosesGaps() bool { return p.rerotate }

// Score is the question's mean weight; the question itself gets the highest score of the layer plus 1.
func (p *finch) Score(l *Layer, _ int, dst [][]float32) {
	group, top := l.Group(), float32(0)
	for g, row := range dst {
		clear(row)
		n := max(len(row)-p.window, 0)
		for h := g * group; h < (g+1)*group; h++ {
			p.add(l, h, row[:n])
		}
		for i, x := range row[:n] {
			row[i] = x / float32(group)
			top = max(top, row[i])
		}
	}
	for _, row := range dst {
		for i := max(len(row)-p.window, 0); i < len(row); i++ {
			row[i] = top + 1
		}
	}
}

// add adds a head's mean weights.
func (p *finch) add(l *Layer, head int, row []float32) {
	if !p.normalise {
		for i := range row {
			row[i] += l.ColumnSums[head][i] / float32(l.SumRows)
		}
		return
	}
	n := l.Tokens(head / l.Group())
	for r := range l.SumRows {
		weights, before := l.PromptRows[head][r*n:(r+1)*n], float32(l.N-l.SumRows+r)/float32(l.SumRows)
		for i := range row {
			row[i] += weights[i] * before
		}
	}
}

// Cut keeps the best of each KV head, or of each of its chunks.
func (p *finch) Cut(l *Layer, scores [][]float32, target int, keep *Selection) {
	for g, row := range scores {
		if p.chunk == 0 {
			keep.Heads[g] = p.cutPart(keep.Heads[g], row, 0, len(row), target)
			continue
		}
		for from := 0; from < len(row); from += p.chunk {
			to := min(from+p.chunk, len(row))
			keep.Heads[g] = p.cutPart(keep.Heads[g], row, from, to, p.budget.Tokens(to-from, l.KVBytes))
		}
	}
}

// cutPart keeps the best n of a part of a head's tokens; of a question that does not fit its newest.
func (p *finch) cutPart(kept []int32, row []float32, from, to, n int) []int32 {
	if question := to - max(from, len(row)-p.window); question > n {
		return span(kept, to-n, to)
	}
	return p.pick.best(kept, row[from:to], n, int32(from))
}

// KeyMover is a PromptKeeper whose tokens stand side by side once it has chosen: their keys are rotated as if they had followed one
// another up to the prompt's end, and their positions are those.
type KeyMover interface {
	PromptKeeper
	ClosesGaps() bool
}
