package metrics

import (
	"math"
	"strings"
)

// codeSimScore is code_sim_score: fuzzywuzzy's ratio, a whole percent, of the first line that is neither a comment nor
// a fence.
func codeSimScore(pred, answer string) float64 {
	line := ""
	for l := range strings.SplitSeq(strings.TrimLeft(pred, "\n"), "\n") {
		if !strings.Contains(l, "`") && !strings.Contains(l, "#") && !strings.Contains(l, "//") {
			line = l
			break
		}
	}
	return float64(fuzzRatio(line, answer)) / 100
}

// fuzzRatio is fuzzywuzzy 0.18.0's fuzz.ratio without python-Levenshtein: difflib's ratio in percent, rounded half to
// even; equal texts are 100 even when empty.
func fuzzRatio(a, b string) int {
	if a == b {
		return 100
	}
	if a == "" || b == "" {
		return 0
	}
	return int(math.RoundToEven(100 * sequenceRatio([]rune(a), []rune(b))))
}

// sequenceRatio is difflib.SequenceMatcher(None, a, b).ratio() with the junk heuristic: in a b of 200 or more elements,
// those that make up more than 1 % (plus one) of it start no match.
func sequenceRatio(a, b []rune) float64 {
	m := matcher{a: a, b: b, at: map[rune][]int{}}
	for j, r := range b {
		m.at[r] = append(m.at[r], j)
	}
	if n := len(b); n >= 200 {
		for r, list := range m.at {
			if len(list) > n/100+1 {
				delete(m.at, r)
			}
		}
	}
	return 2 * float64(m.matches(0, len(a), 0, len(b))) / float64(len(a)+len(b))
}

type matcher struct {
	a, b []rune
	at   map[rune][]int // where each element of b is, popular ones left out
}

// matches is the number of elements in the matching blocks of a[alo:ahi] and b[blo:bhi].
func (m *matcher) matches(alo, ahi, blo, bhi int) int {
	if alo >= ahi || blo >= bhi {
		return 0
	}
	i, j, size := m.longest(alo, ahi, blo, bhi)
	if size == 0 {
		return 0
	}
	return m.matches(alo, i, blo, j) + size + m.matches(i+size, ahi, j+size, bhi)
}

// longest is find_longest_match: the first longest block in a, then in b; blocks grow over popular elements at their ends.
func (m *matcher) longest(alo, ahi, blo, bhi int) (i, j, size int) {
	i, j = alo, blo
	lengths := map[int]int{} // of the match that ends at the previous i and each j
	for x := alo; x < ahi; x++ {
		next := map[int]int{}
		for _, y := range m.at[m.a[x]] {
			if y < blo {
				continue
			}
			if y >= bhi {
				break
			}
			k := lengths[y-1] + 1
			next[y] = k
			if k > size {
				i, j, size = x-k+1, y-k+1, k
			}
		}
		lengths = next
	}
	for i > alo && j > blo && m.a[i-1] == m.b[j-1] {
		i, j, size = i-1, j-1, size+1
	}
	for i+size < ahi && j+size < bhi && m.a[i+size] == m.b[j+size] {
		size++
	}
	return i, j, size
}
