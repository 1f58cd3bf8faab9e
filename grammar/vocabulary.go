package grammar

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"terrace/grammar/automaton"
)

// Vocabulary has the tokens as bytes, in two tries: those of whole plain characters, and the others.
type Vocabulary struct {
	size     int
	ends     []int
	tokens   [][]byte
	longest  int // bytes
	plain    trie
	other    trie
	upTo     [][]uint64 // [n]: the plain tokens of at most n characters
	allPlain []uint64
}

// trie is in depth-first order. Behind its nodes is one more, whose token is behind the last.
type trie struct {
	nodes   []trieNode
	ids     []int32    // tokens in the order of their bytes
	runes   []int32    // [ids]: characters (of plain tokens)
	longest int32      // the most of runes
	bits    [][]uint64 // tokens below nodes with many
}

type trieNode struct {
	end   int32 // behind the last node below this one
	token int32 // in ids: the first that ends here or below
	below int32 // in ids: the first that ends below
	bits  int32 // in trie.bits; -1: the tokens below are few
	depth int32 // bytes, from 1
	runes int32 // characters of the bytes to here (of plain tokens)
	b     byte
}

// manyBelow is from how many tokens below a node on their bits are kept.
const manyBelow = 512

// NewVocabulary takes the bytes of each token, by id; a token without bytes is never allowed. ends are the tokens that end a
// text. It keeps the slices.
func NewVocabulary(tokens [][]byte, ends []int) *Vocabulary {
	v := &Vocabulary{size: len(tokens), ends: ends, tokens: tokens}
	var plain, other []int32
	chars := 0
	for id, b := range tokens {
		if len(b) == 0 || slices.Contains(ends, id) {
			continue
		}
		v.longest = max(v.longest, len(b))
		if isPlain(b) {
			plain = append(plain, int32(id))
			chars = max(chars, utf8.RuneCount(b))
		} else {
			other = append(other, int32(id))
		}
	}
	v.plain, v.other = newTrie(tokens, plain), newTrie(tokens, other)
	v.plain.keepBits(len(v.empty()))
	v.allPlain = v.empty()
	v.upTo = make([][]uint64, min(chars, 64)+1)
	for n := range v.upTo {
		v.upTo[n] = v.empty()
	}
	for _, id := range plain {
		v.allPlain[id>>6] |= 1 << (id & 63)
		for n := utf8.RuneCount(tokens[id]); n < len(v.upTo); n++ {
			v.upTo[n][id>>6] |= 1 << (id & 63)
		}
	}
	return v
}

// Size is the number of ids.
func (v *Vocabulary) Size() int { return v.size }

func (v *Vocabulary) empty() []uint64 { return make([]uint64, (v.size+63)/64) }

// plainUpTo are the plain tokens of at most n characters, where they are in a table.
func (v *Vocabulary) plainUpTo(n int32) ([]uint64, bool) {
	if n == unlimited {
		return v.allPlain, true
	}
	if int(n) < len(v.upTo) {
		return v.upTo[n], true
	}
	return nil, false
}

// isPlain says whether bytes are whole plain characters (automaton.IsPlain).
func isPlain(b []byte) bool {
	for _, r := range string(b) {
		if !automaton.IsPlain(r) {
			return false
		}
	}
	return utf8.Valid(b)
}

func newTrie(tokens [][]byte, ids []int32) trie {
	slices.SortFunc(ids, func(a, b int32) int { return bytes.Compare(tokens[a], tokens[b]) })
	t := trie{ids: ids, runes: make([]int32, len(ids))}
	var open []int32 // nodes on the way to the last token
	var last []byte
	for at, id := range ids {
		b := tokens[id]
		t.runes[at] = int32(utf8.RuneCount(b))
		t.longest = max(t.longest, t.runes[at])
		same := 0
		for same < len(last) && same < len(b) && last[same] == b[same] {
			same++
		}
		for len(open) > same {
			t.nodes[open[len(open)-1]].end = int32(len(t.nodes))
			open = open[:len(open)-1]
		}
		for i := same; i < len(b); i++ {
			open = append(open, int32(len(t.nodes)))
			t.nodes = append(t.nodes, trieNode{token: int32(at), bits: -1, depth: int32(i + 1), runes: int32(utf8.RuneCount(b[:i+1])), b: b[i]})
		}
		for _, i := range open[same:] {
			t.nodes[i].below = int32(at)
		}
		t.nodes[open[len(open)-1]].below = int32(at + 1)
		last = b
	}
	for _, at := range open {
		t.nodes[at].end = int32(len(t.nodes))
	}
	t.nodes = append(t.nodes, trieNode{token: int32(len(ids))})
	return t
}

// keepBits makes bits, for masks of so many words.
func (t *trie) keepBits(words int) {
	for i := range t.nodes[:len(t.nodes)-1] {
		n := &t.nodes[i]
		if below := t.ids[n.below:t.nodes[n.end].token]; len(below) >= manyBelow {
			n.bits = int32(len(t.bits))
			mask := make([]uint64, words)
			for _, id := range below {
				mask[id>>6] |= 1 << (id & 63)
			}
			t.bits = append(t.bits, mask)
		}
	}
}

// allow sets the bits of a node's tokens.
func (t *trie) allow(n *trieNode, mask []uint64) {
	for _, id := range t.ids[n.token:n.below] {
		mask[id>>6] |= 1 << (id & 63)
	}
}
