package grammar

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// Vocabulary has the tokens as bytes, in two tries: those that are whole characters of JSON strings, and the others.
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

// trie is in depth-first order.
type trie struct {
	nodes []trieNode
	more  [][]int32 // tokens of the same bytes, beyond the first
}

type trieNode struct {
	end   int32 // behind the last node below this one
	token int32 // -1: none ends here
	more  int32 // in trie.more; -1: the token is the only one
	depth int32 // bytes, from 1
	runes int32 // characters of the bytes to here (of plain tokens)
	b     byte
}

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

// isPlain says whether bytes are whole characters that stand for themselves in a JSON string.
func isPlain(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.Valid(b)
}

func newTrie(tokens [][]byte, ids []int32) trie {
	slices.SortFunc(ids, func(a, b int32) int { return bytes.Compare(tokens[a], tokens[b]) })
	var t trie
	var open []int32 // nodes on the way to the last token
	var last []byte
	for _, id := range ids {
		b := tokens[id]
		same := 0
		for same < len(last) && same < len(b) && last[same] == b[same] {
			same++
		}
		if same == len(b) && same == len(last) && len(open) > 0 {
			t.again(open[len(open)-1], id)
			continue
		}
		for len(open) > same {
			t.nodes[open[len(open)-1]].end = int32(len(t.nodes))
			open = open[:len(open)-1]
		}
		for i := same; i < len(b); i++ {
			open = append(open, int32(len(t.nodes)))
			t.nodes = append(t.nodes, trieNode{token: -1, more: -1, depth: int32(i + 1), runes: int32(utf8.RuneCount(b[:i+1])), b: b[i]})
		}
		t.nodes[open[len(open)-1]].token = id
		last = b
	}
	for _, at := range open {
		t.nodes[at].end = int32(len(t.nodes))
	}
	return t
}

func (t *trie) again(at, id int32) {
	n := &t.nodes[at]
	if n.more < 0 {
		n.more = int32(len(t.more))
		t.more = append(t.more, nil)
	}
	t.more[n.more] = append(t.more[n.more], id)
}

// allow sets the bits of a node's tokens.
func (t *trie) allow(n *trieNode, mask []uint64) {
	if n.token < 0 {
		return
	}
	mask[n.token>>6] |= 1 << (n.token & 63)
	if n.more >= 0 {
		for _, id := range t.more[n.more] {
			mask[id>>6] |= 1 << (id & 63)
		}
	}
}
