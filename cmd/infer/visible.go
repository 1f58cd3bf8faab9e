package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// visible shows what would steer a terminal (control characters of ASCII and Latin-1, bytes that are no text) as escapes: \x1b, \u009b.
// Characters of kept stay.
func visible(text, kept string) string {
	steers := func(r rune, size int) bool {
		return r == utf8.RuneError && size == 1 || (r < 0x20 || r >= 0x7f && r < 0xa0) && !strings.ContainsRune(kept, r)
	}
	clean := true
	for i := 0; i < len(text) && clean; {
		r, size := utf8.DecodeRuneInString(text[i:])
		clean = !steers(r, size)
		i += size
	}
	if clean {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case !steers(r, size):
			b.WriteString(text[i : i+size])
		case size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}
