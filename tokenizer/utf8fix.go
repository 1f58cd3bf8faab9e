package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// decodeLoose reads one character of text that may not be UTF-8 the way
// llama.cpp does: overlong forms decode, every byte that starts no sequence
// becomes U+FFFD. Beyond U+10FFFF, where llama.cpp aborts, the byte becomes
// U+FFFD too.
func decodeLoose(s string) (r rune, size int) {
	b := s[0]
	var need int
	switch {
	case b < 0x80:
		return rune(b), 1
	case b&0xE0 == 0xC0:
		need, r = 1, rune(b&0x1F)
	case b&0xF0 == 0xE0:
		need, r = 2, rune(b&0x0F)
	case b&0xF8 == 0xF0:
		need, r = 3, rune(b&0x07)
	default:
		return utf8.RuneError, 1
	}
	if len(s) <= need {
		return utf8.RuneError, 1
	}
	for _, c := range []byte(s[1 : need+1]) {
		if c&0xC0 != 0x80 {
			return utf8.RuneError, 1
		}
		r = r<<6 | rune(c&0x3F)
	}
	if r > utf8.MaxRune {
		return utf8.RuneError, 1
	}
	return r, need + 1
}

// loosen rewrites text that is not UTF-8 with decodeLoose; surrogates keep
// their three bytes.
func loosen(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 16)
	for len(s) > 0 {
		r, n := decodeLoose(s)
		if r >= 0xD800 && r <= 0xDFFF {
			b.WriteString(s[:n])
		} else {
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

// leadLen is the length of a character by its first byte alone, as the
// SentencePiece model of llama.cpp cuts text.
func leadLen(b byte) int {
	switch {
	case b < 0xC0:
		return 1
	case b < 0xE0:
		return 2
	case b < 0xF0:
		return 3
	}
	return 4
}
