package model

import (
	"bytes"
	"math"
	"slices"
	"strings"
)

// DRY ("don't repeat yourself", by p-e-w, as llama.cpp has it) subtracts from the logits of tokens that would go on with a repetition:
// Multiplier · Base^(n - AllowedLength), where the last n tokens of the text, n at least AllowedLength, stand before it elsewhere. A repetition does
// not reach beyond a Breaker.
type DRY struct {
	Multiplier    float64 // 0 = off
	Base          float64 // 1 or more
	AllowedLength int     // repetitions that are shorter are free
	Last          int     // how many tokens of the text are looked at, the prompt's too; -1 = all, 0 = none
}

// DefaultDRY is llama.cpp's, once a multiplier is chosen.
var DefaultDRY = DRY{Base: 1.75, AllowedLength: 2, Last: -1}

// DefaultBreakers are the texts that repetitions do not reach beyond unless others are chosen: llama.cpp's.
var DefaultBreakers = []string{"\n", ":", "\"", "*"}

func (d *DRY) on() bool { return d.Multiplier != 0 && d.Last != 0 }

func (d *DRY) validate(check func(ok bool, format string, args ...any), finite func(float64) bool) {
	check(finite(d.Multiplier) && d.Multiplier >= 0, "dry-multiplier %g: want 0 (off) or more", d.Multiplier)
	check(d.Multiplier == 0 || finite(d.Base) && d.Base >= 1, "dry-base %g: want 1 or more", d.Base)
	check(d.AllowedLength >= 0, "dry-allowed-length %d: want 0 or more", d.AllowedLength)
	check(d.Last >= -1, "dry-penalty-last-n %d: want -1 (all), 0 (off) or more", d.Last)
}

// Most of a breaker.
const (
	MaxBreakerBytes = 40
	maxBreakerTail  = 20 // tokens behind its first
)

// Breakers are the sequences of tokens that hold some texts: by their first token, those that follow it.
type Breakers struct {
	tails map[int][][]int
}

// NewBreakers finds, for each text, the tokens that hold it, and those that end in its beginning, behind which its rest follows as encode
// writes it. pieces are the bytes of each token [V], of control tokens their text. Source: llama.cpp, which has it of KoboldCpp.
func NewBreakers(texts []string, pieces [][]byte, encode func(text string) ([]int, error)) (*Breakers, error) {
	b := &Breakers{tails: map[int][][]int{}}
	for _, text := range texts {
		rests := make([][]int, len(text))
		for id, piece := range pieces {
			if bytes.Contains(piece, []byte(text)) {
				b.add(id, nil)
				continue
			}
			for n := min(len(text)-1, len(piece)); n > 0; n-- {
				if !strings.HasPrefix(text, string(piece[len(piece)-n:])) {
					continue
				}
				if rests[n] == nil {
					rest, err := encode(text[n:])
					if err != nil {
						return nil, err
					}
					rests[n] = rest[:min(len(rest), maxBreakerTail)]
				}
				b.add(id, rests[n])
			}
		}
	}
	return b, nil
}

func (b *Breakers) add(id int, tail []int) {
	if !slices.ContainsFunc(b.tails[id], func(t []int) bool { return slices.Equal(t, tail) }) {
		b.tails[id] = append(b.tails[id], tail)
	}
}

// alone says whether the token holds a whole breaker.
func (b *Breakers) alone(id int) bool {
	return b != nil && slices.ContainsFunc(b.tails[id], func(t []int) bool { return len(t) == 0 })
}

// since is how many tokens of a text follow the last breaker in it.
func (b *Breakers) since(text []int) int {
	if b == nil {
		return len(text)
	}
	for i := range text {
		at := len(text) - 1 - i
		longest := -1
		for _, tail := range b.tails[text[at]] {
			if len(tail) > longest && len(tail) <= i && slices.Equal(tail, text[at+1:at+1+len(tail)]) {
				longest = len(tail)
			}
		}
		if longest >= 0 {
			return i - longest
		}
	}
	return len(text)
}

// Break gives DRY its breakers; nil = none.
func (s *Sampler) Break(b *Breakers) { s.breakers = b }

// dryScratch is memory of dry.
type dryScratch struct {
	same    []int       // of each suffix's start, how far the text behind it reads as the text's end, from the end on
	longest map[int]int // by token, the longest repetition that it would go on with
}

// dry makes tokens less likely that go on with a repetition.
func (s *Sampler) dry(logits []float32, history []int) {
	d := &s.o.DRY
	if !d.on() {
		return
	}
	text := history
	if d.Last > 0 && len(text) > d.Last {
		text = text[len(text)-d.Last:]
	}
	if len(text) <= d.AllowedLength {
		return
	}
	limit := s.breakers.since(text)
	if limit < d.AllowedLength {
		return
	}
	for id, n := range s.repeats.find(text, limit, d.AllowedLength) {
		if id < 0 || id >= len(logits) || s.breakers.alone(id) {
			continue
		}
		exponent := float64(n - d.AllowedLength)
		if d.Base > 1.000001 { // so that the penalty stays a float32
			exponent = min(exponent, math.Floor(88.7228391/math.Log(d.Base)))
		}
		logits[id] -= float32(d.Multiplier * math.Pow(d.Base, exponent))
	}
}

// find returns the tokens of the text that stand behind an earlier copy of its last tokens, and how many those are, limit at most, of
// those that are least at least. The lengths are the Z function of the text read backwards, in one pass.
func (w *dryScratch) find(text []int, limit, least int) map[int]int {
	if w.longest == nil {
		w.longest = map[int]int{}
	}
	clear(w.longest)
	n := len(text)
	w.same = slices.Grow(w.same[:0], n)[:n]
	back := func(i int) int { return text[n-1-i] }
	left, right := 0, 0 // the box: back(left…right-1) is back(0…)
	for k := 1; k < n; k++ {
		z := 0
		if k < right {
			z = min(w.same[k-left], right-k)
		}
		for k+z < n && back(z) == back(k+z) {
			z++
		}
		if w.same[k] = z; k+z > right {
			left, right = k, k+z
		}
		if z = min(z, limit); z >= least {
			id := back(k - 1)
			if was, ok := w.longest[id]; !ok || was < z {
				w.longest[id] = z
			}
		}
	}
	return w.longest
}
