package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// DecodeText is Decode for text that is read on: the result is UTF-8, as Hugging Face's decode gives it. Byte-level tokens
// that make no character become one U+FFFD for each longest start of a character (as Unicode recommends and Rust and Python
// do), so that the halves of a text cut within a character do not join to another one. Of byte tokens ("<0x0A>") a whole
// run is taken or one U+FFFD a byte.
func (t *Tokenizer) DecodeText(ids []int, withSpecial bool) string {
	if !t.decoding.Bytes {
		return replaceInvalid(t.Decode(ids, withSpecial))
	}
	var out, run []byte
	flush := func() {
		if !utf8.Valid(run) {
			run = []byte(strings.Repeat("\uFFFD", len(run)))
		}
		out, run = append(out, run...), run[:0]
	}
	start := t.newStart()
	for _, id := range ids {
		piece := start.append(nil, id, withSpecial)
		if t.isByteToken(id) {
			run = append(run, piece...)
			continue
		}
		if len(piece) > 0 {
			flush()
			out = append(out, piece...)
		}
	}
	flush()
	return replaceInvalid(string(out))
}

func (t *Tokenizer) isByteToken(id int) bool {
	if id < 0 || id >= len(t.vocab.Tokens) {
		return false
	}
	switch t.vocab.typeOf(id) {
	case TypeControl, TypeUnknown, TypeUserDefined:
		if !t.decoding.Added {
			return false
		}
	}
	_, ok := byteToken(t.vocab.Tokens[id])
	return ok
}

// replaceInvalid puts one U+FFFD for each maximal subpart of a character that is not whole (Unicode 15, section 3.9).
func replaceInvalid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			n = maximalSubpart(s)
		}
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String()
}

// maximalSubpart is the length of the longest start of a character at the start of s, at least 1; s does not start with a
// whole character.
func maximalSubpart(s string) int {
	low, high, need := byte(0x80), byte(0xBF), 0
	switch c := s[0]; {
	case c >= 0xC2 && c <= 0xDF:
		need = 1
	case c >= 0xE0 && c <= 0xEF:
		need = 2
		switch c {
		case 0xE0:
			low = 0xA0 // not overlong
		case 0xED:
			high = 0x9F // no surrogate
		}
	case c >= 0xF0 && c <= 0xF4:
		need = 3
		switch c {
		case 0xF0:
			low = 0x90
		case 0xF4:
			high = 0x8F // at most U+10FFFF
		}
	}
	n := 1
	for n <= need && n < len(s) && s[n] >= low && s[n] <= high {
		low, high = 0x80, 0xBF
		n++
	}
	return n
}
