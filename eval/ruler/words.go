package ruler

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
)

//go:embed data/nounlist.txt
var nounList string

//go:embed data/adjectivelist.txt
var adjectiveList string

//go:embed data/verblist.txt
var verbList string

// words are the parts that keys and word lists are drawn from, sorted and unique.
type words struct{ nouns, adjectives, all []string }

var vocabulary = sync.OnceValue(func() words {
	w := words{nouns: lines(nounList), adjectives: lines(adjectiveList)}
	w.all = slices.Concat(w.nouns, w.adjectives, lines(verbList))
	slices.Sort(w.all)
	w.all = slices.Compact(w.all)
	return w
})

func lines(text string) []string {
	out := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// kind of a needle's key or value.
type kind string

const (
	numbers kind = "numbers" // seven digits
	names   kind = "words"   // adjective-noun
	uuids   kind = "uuids"
)

func draw(rng *rand.Rand, k kind) string {
	switch k {
	case numbers:
		return fmt.Sprint(1000000 + rng.IntN(9000000))
	case uuids:
		a, b := rng.Uint64(), rng.Uint64()
		a = a&^0xf000 | 0x4000       // version 4
		b = b&^(0xc0<<56) | 0x80<<56 // RFC 4122 variant
		return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&0xffffffffffff)
	}
	w := vocabulary()
	return w.adjectives[rng.IntN(len(w.adjectives))] + "-" + w.nouns[rng.IntN(len(w.nouns))]
}

// sample draws n different indices below max, in the order drawn.
func sample(rng *rand.Rand, max, n int) []int { return rng.Perm(max)[:min(n, max)] }

// letters draws n letters from the alphabet that begins at first.
func letters(rng *rand.Rand, first byte, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(rng.IntN(26))
	}
	return string(b)
}
