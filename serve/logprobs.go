package serve

import (
	"container/heap"
	"math"

	"terrace/tokenizer"
)

// Ranker makes log probabilities from logits as the model gave them: before samplers, penalties and constraints.
type Ranker struct {
	tok    *tokenizer.Tokenizer
	n      int // likeliest tokens to list
	values []float32
	norm   float64 // logarithm of the sum of exponentials
	best   []int   // ids, likeliest first
}

// NewRanker lists n likeliest tokens beside each; 0 = none.
func NewRanker(tok *tokenizer.Tokenizer, n int) *Ranker { return &Ranker{tok: tok, n: n} }

// Rank takes a row of logits in; it is copied, since samplers change it.
func (k *Ranker) Rank(logits []float32) {
	k.values = append(k.values[:0], logits...)
	top := float32(math.Inf(-1))
	for _, v := range logits {
		top = max(top, v)
	}
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v - top))
	}
	k.norm = float64(top) + math.Log(sum)
	k.best = k.likeliest()
}

func (k *Ranker) logprob(id int) float32 {
	return float32(min(0, float64(k.values[id])-k.norm))
}

// Fill gives a token its log probability in the row, and the likeliest of the row.
func (k *Ranker) Fill(t *Token) {
	t.Logprob = k.logprob(t.ID)
	k.Name(t)
	for _, id := range k.best {
		x := TopToken{ID: id, Logprob: k.logprob(id)}
		x.Name, x.Own = k.tok.TokenView(id)
		t.Top = append(t.Top, x)
	}
}

// Name says how a token is shown.
func (k *Ranker) Name(t *Token) { t.Name, t.Own = k.tok.TokenView(t.ID) }

// likeliest are the n ids with the largest logits, the largest first, the lower id first among equals.
func (k *Ranker) likeliest() []int {
	h := worstFirst{values: k.values}
	if k.n == 0 {
		return nil
	}
	for id := range k.values {
		if len(h.ids) < k.n {
			heap.Push(&h, id)
		} else if h.worse(h.ids[0], id) {
			h.ids[0] = id
			heap.Fix(&h, 0)
		}
	}
	out := make([]int, len(h.ids))
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = heap.Pop(&h).(int)
	}
	return out
}

// worstFirst is a heap of ids whose worst stands at the top.
type worstFirst struct {
	ids    []int
	values []float32
}

func (h *worstFirst) worse(a, b int) bool {
	return h.values[a] < h.values[b] || h.values[a] == h.values[b] && a > b
}
func (h *worstFirst) Len() int           { return len(h.ids) }
func (h *worstFirst) Less(i, j int) bool { return h.worse(h.ids[i], h.ids[j]) }
func (h *worstFirst) Swap(i, j int)      { h.ids[i], h.ids[j] = h.ids[j], h.ids[i] }
func (h *worstFirst) Push(x any)         { h.ids = append(h.ids, x.(int)) }
func (h *worstFirst) Pop() any {
	last := h.ids[len(h.ids)-1]
	h.ids = h.ids[:len(h.ids)-1]
	return last
}

// echoRows notes the log probabilities of the prompt's tokens: row i of logits [rows, V] is of the token after first+i.
func (q *sequence) echoRows(first int, logits []float32) error {
	for at := first + 1; len(logits) > 0 && at < len(q.prompt); at, logits = at+1, logits[q.vocab:] {
		q.echo[at].ID = q.prompt[at]
		q.top.Rank(logits[:q.vocab])
		q.top.Fill(&q.echo[at])
	}
	return nil
}
