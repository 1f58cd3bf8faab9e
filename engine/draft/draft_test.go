package draft

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestNGram against a search by hand: the guess follows the last place where the longest known end of the text stood before.
func TestNGram(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	g, text := NewNGram(), []int{1, 2}
	for len(text) < 400 {
		text = append(text, rng.IntN(4))
		if rng.IntN(4) == 0 {
			at := rng.IntN(len(text))
			text = append(text, text[at:min(at+rng.IntN(9), len(text))]...)
		}
		fresh := NewNGram() // one that does not go on with a guess
		for _, d := range []*NGram{g, fresh} {
			kind := d.Look(text)
			got, _ := d.Draft(nil, 6)
			if kind >= 0 && d.long > ngramMost { // it went on
				continue
			}
			want, length := searched(text, 6)
			if length == 0 != (kind < 0) || kind >= 0 && (d.long != length || !slices.Equal(got, want)) {
				t.Fatalf("after %v: kind %d, length %d guesses %v, want length %d and %v", text, kind, d.long, got, length, want)
			}
		}
	}
}

// TestNGramGoesOn: a guess that comes true token by token, read ahead or not, is trusted more from kind to kind, and a wrong one not.
func TestNGramGoesOn(t *testing.T) {
	var text, kinds []int
	for i := range 40 {
		text = append(text, 100+i)
	}
	g := NewNGram()
	for i := range 20 {
		text = append(text, 110+i)
		kinds = append(kinds, g.Look(text))
	}
	if want := []int{-1, 0, 1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
	if got := g.Look(append(text, 7, 110, 111)); got != 0 {
		t.Errorf("after a wrong token: kind %d, want 0", got)
	}
	p := NewPace()
	for range 10 {
		p.Judged(0, 1, 0)
	}
	if short, long := p.Length(0, Most), p.Length(Kinds-1, Most); short != 0 || long < 3 {
		t.Errorf("where short matches are wrong: %d guesses after one, %d after a long one", short, long)
	}
}

func searched(text []int, n int) (guess []int, length int) {
	for length = ngramMost; length >= ngramLeast; length-- {
		for at := len(text) - 1; at >= length; at-- {
			if slices.Equal(text[at-length:at], text[len(text)-length:]) {
				long := slices.Clone(text)
				for i := range n {
					long = append(long, long[at+i])
				}
				return long[len(text):], length
			}
		}
	}
	return nil, 0
}

// TestPace: the most tokens a second by the formula, searched by hand.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		share, wider float64
		most, want   int
	}{{1, 0.3, 15, 15}, {0.9, 0.35, 15, 4}, {0.5, 0.35, 15, 1}, {0.2, 0.35, 15, 0}, {0.9, 0.05, 15, 13}, {1, 0.3, 4, 4}} {
		p := NewPace()
		p.wider, p.kinds[2].right, p.kinds[2].tried = c.wider, c.share*10, 10
		if got := p.Length(2, c.most); got != c.want {
			t.Errorf("share %v, %v a row, %d at most: %d guesses, want %d", c.share, c.wider, c.most, got, c.want)
		}
	}
	p := NewPace()
	p.kinds[0].right = 0
	tried := 0
	for range 10 * retryEvery {
		tried += p.Length(0, 15)
	}
	if tried != 10 {
		t.Errorf("guesses that are never right: %d tried of %d, want 10", tried, 10*retryEvery)
	}
}
