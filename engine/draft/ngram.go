package draft

// NGram guesses that a text goes on as it did after the last place where its newest tokens stood before (prompt lookup, Saxena
// 2023): in extraction, code and summaries, and wherever a text repeats itself. It costs a few map accesses a token.
type NGram struct {
	last   [ngramMost + 1]map[uint64]int32 // [length] hash of so many tokens → where what followed them begins
	tokens []int                           // of the text that is noted
	noted  int
	from   int // where the guess begins
	next   int // where the guess would go on if it was right so far; -1 = there is none
	long   int // tokens that the guess's place has in common with the end of the text
}

// Lengths of what is looked up.
const (
	ngramLeast = 2
	ngramMost  = 5
)

// ngramKinds are the least lengths of each kind of guess: of what matched and of what then came as guessed, read ahead or not.
var ngramKinds = [Kinds]int{ngramLeast, 3, 4, 6, 9, 16}

func (g *NGram) kind() int {
	k := 0
	for k+1 < Kinds && ngramKinds[k+1] <= g.long {
		k++
	}
	return k
}

// NewNGram returns a drafter that knows no text yet.
func NewNGram() *NGram {
	g := &NGram{next: -1}
	for n := ngramLeast; n <= ngramMost; n++ {
		g.last[n] = map[uint64]int32{}
	}
	return g
}

// Name implements Drafter.
func (g *NGram) Name() string { return "ngram" }

// Close implements Drafter.
func (g *NGram) Close() error { return nil }

// Look implements Drafter. tokens may only grow between calls.
func (g *NGram) Look(tokens []int) int {
	if len(tokens) < len(g.tokens) {
		*g = *NewNGram()
	}
	grown := len(tokens) - len(g.tokens)
	g.tokens = tokens
	// What ends before the newest token is noted; the newest have nothing behind them yet.
	for ; g.noted < len(tokens)-1; g.noted++ {
		for n := ngramLeast; n <= min(ngramMost, g.noted+1); n++ {
			g.last[n][hashOf(tokens[g.noted+1-n:g.noted+1])] = int32(g.noted + 1)
		}
	}
	if g.next >= 0 && grown > 0 && g.goesOn(grown) {
		g.from = g.next + grown
		g.next = g.from
		g.long += grown
		return g.kind()
	}
	g.next = -1
	for n := min(ngramMost, len(tokens)); n >= ngramLeast; n-- {
		if at, ok := g.last[n][hashOf(tokens[len(tokens)-n:])]; ok {
			g.from, g.next, g.long = int(at), int(at), n
			return g.kind()
		}
	}
	return -1
}

// goesOn reports whether the newest tokens are those that were guessed.
func (g *NGram) goesOn(grown int) bool {
	at := len(g.tokens) - grown
	for i := range grown {
		if g.next+i >= at+i || g.tokens[g.next+i] != g.tokens[at+i] {
			return false
		}
	}
	return true
}

// Draft implements Drafter: where the place it copies from reaches the end of the text, it goes on with what it guesses itself.
func (g *NGram) Draft(dst []int, n int) ([]int, error) {
	begin := len(dst)
	for i := range n {
		if at := g.from + i; at < len(g.tokens) {
			dst = append(dst, g.tokens[at])
		} else {
			dst = append(dst, dst[begin+at-len(g.tokens)])
		}
	}
	return dst, nil
}

// hashOf is FNV-1a over ids; a collision costs a wrong guess.
func hashOf(ids []int) uint64 {
	h := uint64(14695981039346656037)
	for _, id := range ids {
		h = (h ^ uint64(id)) * 1099511628211
	}
	return h
}
