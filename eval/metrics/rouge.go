package metrics

import (
	"strings"

	"terrace/eval/jieba"
)

// pythonDepth is how deep rouge's recursion can go before Python's limit of 1,000 frames raises RecursionError, which
// rouge_score turns into 0: the limit less the frames of eval.py's call (module, scorer, rouge_score, get_scores,
// _get_avg_scores, lambda, rouge_l_summary_level, _union_lcs, _recon_lcs).
const pythonDepth = 1000 - 9

// rougeScore is rouge_score: the F of rouge 1.0.1's summary-level ROUGE-L over sets of words, 0 where the package raises
// (an empty or dots-only text, or sentences long enough to reach Python's recursion limit).
func rougeScore(pred, answer string) float64 { return rougeL(pred, answer, pythonDepth) }

// rougeZhScore is rouge_zh_score: rougeScore of jieba's words joined by blanks. Its call is one frame deeper.
func rougeZhScore(pred, answer string) float64 {
	return rougeL(strings.Join(jieba.Cut(pred), " "), strings.Join(jieba.Cut(answer), " "), pythonDepth-1)
}

func rougeL(pred, answer string, depth int) float64 {
	hyp, ref := sentences(pred), sentences(answer)
	if len(hyp) == 0 || len(ref) == 0 {
		return 0
	}
	union := map[string]bool{}
	for _, r := range ref {
		for _, h := range hyp {
			if !addCommon(union, r, h, depth) {
				return 0
			}
		}
	}
	llcs := float64(len(union))
	recall, precision := llcs/float64(distinct(ref)), llcs/float64(distinct(hyp))
	return 2 * ((precision * recall) / (precision + recall + 1e-8))
}

// sentences splits at dots only; a sentence of blanks is one empty word.
func sentences(s string) [][]string {
	var out [][]string
	for part := range strings.SplitSeq(s, ".") {
		if part == "" {
			continue
		}
		words := fields(part)
		if len(words) == 0 {
			words = []string{""}
		}
		out = append(out, words)
	}
	return out
}

func distinct(sentences [][]string) int {
	set := map[string]bool{}
	for _, s := range sentences {
		for _, w := range s {
			set[w] = true
		}
	}
	return len(set)
}

// addCommon adds the words of the longest common subsequence of x and y that rouge's backtracking finds, and reports
// whether the walk (one Python frame a step) stayed within the depth.
func addCommon(union map[string]bool, x, y []string, depth int) bool {
	n, m := len(x), len(y)
	stride := m + 1
	table := make([]int32, (n+1)*stride)
	for i := 1; i <= n; i++ {
		for j := 1; j <= m; j++ {
			if x[i-1] == y[j-1] {
				table[i*stride+j] = table[(i-1)*stride+j-1] + 1
			} else {
				table[i*stride+j] = max(table[(i-1)*stride+j], table[i*stride+j-1])
			}
		}
	}
	var found []string
	i, j, frames := n, m, 1
	for ; i > 0 && j > 0; frames++ {
		switch {
		case x[i-1] == y[j-1]:
			i, j = i-1, j-1
			found = append(found, x[i])
		case table[(i-1)*stride+j] > table[i*stride+j-1]:
			i--
		default:
			j--
		}
	}
	if frames > depth {
		return false
	}
	for _, w := range found {
		union[w] = true
	}
	return true
}
