package metrics

import (
	"slices"
	"strings"
)

// RougeLsum is the F of rougeLsum of Google's rouge_score 0.1.2 without a stemmer, sentences being lines: what Hugging Face's evaluate
// gives, and InfiniteBench scores summaries with.
func RougeLsum(pred, answer string) float64 {
	ref, can := scoredLines(answer), scoredLines(pred)
	inRef, inCan := map[string]int{}, map[string]int{}
	m, n := 0, 0
	for _, s := range ref {
		m += len(s)
		for _, w := range s {
			inRef[w]++
		}
	}
	for _, s := range can {
		n += len(s)
		for _, w := range s {
			inCan[w]++
		}
	}
	if m == 0 || n == 0 {
		return 0
	}
	hits := 0
	for _, r := range ref {
		var union []int
		for _, c := range can {
			union = append(union, commonIndices(r, c)...)
		}
		slices.Sort(union)
		for _, i := range slices.Compact(union) {
			if w := r[i]; inCan[w] > 0 && inRef[w] > 0 {
				hits++
				inCan[w]--
				inRef[w]--
			}
		}
	}
	if hits == 0 {
		return 0
	}
	recall, precision := float64(hits)/float64(m), float64(hits)/float64(n)
	return 2 * precision * recall / (precision + recall)
}

// scoredLines are the words of each line: runs of ASCII letters and digits of the lowered text.
func scoredLines(s string) (out [][]string) {
	for line := range strings.SplitSeq(s, "\n") {
		if line == "" {
			continue
		}
		out = append(out, strings.FieldsFunc(lower(line), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }))
	}
	return out
}

// commonIndices are those of ref in the longest common subsequence that rouge_score walks back to.
func commonIndices(ref, can []string) []int {
	stride := len(can) + 1
	table := make([]int32, (len(ref)+1)*stride)
	for i := 1; i <= len(ref); i++ {
		for j := 1; j <= len(can); j++ {
			if ref[i-1] == can[j-1] {
				table[i*stride+j] = table[(i-1)*stride+j-1] + 1
			} else {
				table[i*stride+j] = max(table[(i-1)*stride+j], table[i*stride+j-1])
			}
		}
	}
	var out []int
	for i, j := len(ref), len(can); i > 0 && j > 0; {
		switch {
		case ref[i-1] == can[j-1]:
			i, j = i-1, j-1
			out = append(out, i)
		case table[i*stride+j-1] > table[(i-1)*stride+j]:
			j--
		default:
			i--
		}
	}
	return out
}
