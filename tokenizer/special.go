package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// specials finds added tokens in text: at every position the longest token
// that starts there wins, as in Hugging Face's matcher. (llama.cpp takes the
// longest tokens of the whole text first; the two differ only where two added
// tokens overlap without one holding the other.) A byte trie makes the scan
// linear in the text times the longest token. Immutable.
type specials struct {
	first [256]bool
	nodes []trieNode
	match map[int32]Match
	empty bool
}

// trieNode keeps its children as a sorted run of edges: vocabularies have
// thousands of added tokens that share long prefixes.
type trieNode struct {
	id    int32 // token that ends here, or -1
	edges []trieEdge
}

type trieEdge struct {
	b    byte
	node int32
}

func newSpecials(texts []string, match map[int]Match, keep func(id int) bool) *specials {
	s := &specials{nodes: []trieNode{{id: -1}}, match: map[int32]Match{}, empty: true}
	for id, text := range texts {
		if text == "" || !keep(id) {
			continue
		}
		s.empty = false
		s.first[text[0]] = true
		at := int32(0)
		for i := range len(text) {
			at = s.child(at, text[i], true)
		}
		if s.nodes[at].id < 0 {
			s.nodes[at].id = int32(id)
		}
		if m, ok := match[id]; ok && m != (Match{}) {
			s.match[int32(id)] = m
		}
	}
	return s
}

func (s *specials) child(at int32, b byte, add bool) int32 {
	for _, e := range s.nodes[at].edges {
		if e.b == b {
			return e.node
		}
	}
	if !add {
		return -1
	}
	node := int32(len(s.nodes))
	s.nodes = append(s.nodes, trieNode{id: -1})
	s.nodes[at].edges = append(s.nodes[at].edges, trieEdge{b, node})
	return node
}

// longest returns the longest token at byte i of text and its end, or -1.
func (s *specials) longest(text string, i int) (id int32, end int) {
	id = -1
	at := int32(0)
	for j := i; j < len(text); j++ {
		if at = s.child(at, text[j], false); at < 0 {
			break
		}
		if found := s.nodes[at].id; found >= 0 {
			id, end = found, j+1
		}
	}
	return id, end
}

// aloneAt reports whether text[i:end] has no character of a word on either
// side.
func aloneAt(text string, i, end int) bool {
	before, n := utf8.DecodeLastRuneInString(text[:i])
	after, m := utf8.DecodeRuneInString(text[end:])
	return (n == 0 || !isWord(before)) && (m == 0 || !isWord(after))
}

// split calls plain for the stretches of text between added tokens and token
// for each of those, in order.
func (s *specials) split(text string, plain func(text string) error, token func(id int32)) error {
	return s.splitMarked(text, "", plain, token)
}

// splitMarked is split where no added token is found at a mark; plain is called with the marks that there are. "" = there are none.
func (s *specials) splitMarked(text string, mark Mark, plain func(text string) error, token func(id int32)) error {
	from := 0
	if s.empty {
		if text == "" {
			return nil
		}
		return plain(text)
	}
	for i := 0; i < len(text); {
		if mark != "" && strings.HasPrefix(text[i:], string(mark)) {
			i += len(mark)
			_, n := utf8.DecodeRuneInString(text[i:])
			i += n
			continue
		}
		if !s.first[text[i]] {
			i++
			continue
		}
		id, end := s.longest(text, i)
		if id < 0 {
			i++
			continue
		}
		start, m := i, s.match[id]
		i = end
		if m.SingleWord && !aloneAt(text, start, end) {
			continue
		}
		if m.LStrip || m.RStrip {
			start, end = stripAround(text, from, start, end, m)
		}
		if from < start {
			if err := plain(text[from:start]); err != nil {
				return err
			}
		}
		if start < end { // else the token before took its white space, which was all of it
			token(id)
		}
		from = end
	}
	if from < len(text) {
		return plain(text[from:])
	}
	return nil
}

func stripAround(text string, from, start, end int, m Match) (int, int) {
	for m.LStrip && start > from {
		r, n := utf8.DecodeLastRuneInString(text[from:start])
		if c := runeClasses()[r]; c&classSpace == 0 {
			break
		}
		start -= n
	}
	if m.LStrip {
		start = max(start, from)
	}
	if m.RStrip {
		end = skipClass(text, end, classSpace)
	}
	return start, end
}
