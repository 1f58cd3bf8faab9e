package jieba

import (
	"math"
	"unicode"
	"unicode/utf8"
)

// Cut is jieba.cut(text, cut_all=False, HMM=True): words, punctuation and blanks in order; joined they are the text.
// Invalid UTF-8 bytes count as U+FFFD.
func Cut(text string) []string {
	t := load()
	runes := []rune(text)
	var out []string
	for from := 0; from < len(runes); {
		to := from + 1
		if !isWordRune(runes[from]) {
			if runes[from] == '\r' && to < len(runes) && runes[to] == '\n' {
				to++
			}
			out = append(out, string(runes[from:to]))
			from = to
			continue
		}
		for to < len(runes) && isWordRune(runes[to]) {
			to++
		}
		out = t.cutBlock(out, runes[from:to])
		from = to
	}
	return out
}

// isWordRune is jieba's re_han_default.
func isWordRune(r rune) bool {
	switch r {
	case '+', '#', '&', '.', '_', '%', '-':
		return true
	}
	return isHan(r) || isASCIIAlnum(r)
}

func isHan(r rune) bool { return r >= 0x4E00 && r <= 0x9FD5 }

func isASCIIAlnum(r rune) bool {
	return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// cutBlock takes the most probable path through the dictionary words of a block and hands runs of single characters to
// the HMM.
func (t *tables) cutBlock(out []string, block []rune) []string {
	ends := t.bestEnds(block)
	single := 0 // start of the run of single characters that ends at x
	for x := 0; x < len(block); {
		end := ends[x]
		if end-x > 1 {
			out = t.flush(out, block[single:x])
			out = append(out, string(block[x:end]))
			single = end
		}
		x = end
	}
	return t.flush(out, block[single:])
}

// bestEnds gives, for each start, the end of the word that the most probable path takes there. Of equal probabilities the
// longest word wins, as Python's max over (probability, end) has it.
func (t *tables) bestEnds(block []rune) []int {
	n := len(block)
	ends, score := make([]int, n), make([]float64, n+1)
	text := string(block)
	at := make([]int, n+1) // byte offset of each rune
	for i, r := range block {
		at[i+1] = at[i] + utf8.RuneLen(r)
	}
	for i := n - 1; i >= 0; i-- {
		best := math.Inf(-1)
		try := func(end, freq int) {
			p := math.Log(float64(freq)) - t.logTotal + score[end]
			if p >= best {
				best, ends[i] = p, end
			}
		}
		found := false
		lo, hi := t.all()
		for end := i + 1; end <= n; end++ {
			word := text[at[i]:at[end]]
			if lo, hi = t.narrow(lo, hi, word); lo >= hi {
				break
			}
			if f := t.freq(lo, hi, word); f > 0 {
				try(end, f)
				found = true
			}
		}
		if !found {
			try(i+1, 1)
		}
		score[i] = best
	}
	return ends
}

// flush cuts a run of single characters: the HMM finds words in it, unless the run is a dictionary word that the best
// path did not take.
func (t *tables) flush(out []string, run []rune) []string {
	if len(run) == 0 {
		return out
	}
	word := string(run)
	lo, hi := t.all()
	lo, hi = t.narrow(lo, hi, word)
	if len(run) > 1 && t.freq(lo, hi, word) == 0 {
		return t.cutUnknown(out, run)
	}
	for _, r := range run {
		out = append(out, string(r))
	}
	return out
}
