package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// spaceCuts finds where text with written spaces (U+2581) can be cut before it
// is merged without changing the result: what a merge makes is a token, so no
// merge crosses a pair of characters that no token holds. It keeps pieces short
// and lets them be cached. It holds the characters that some token has directly
// before a written space.
type spaceCuts map[rune]bool

func newSpaceCuts(tokens []string) spaceCuts {
	cuts := spaceCuts{}
	for _, token := range tokens {
		for at := 0; ; {
			i := strings.Index(token[at:], space)
			if i < 0 {
				break
			}
			at += i
			if before, _ := utf8.DecodeLastRuneInString(token[:at]); at > 0 && before != '\u2581' {
				cuts[before] = true
			}
			at += len(space)
		}
	}
	return cuts
}

// split cuts text before the spaces that no token can cross.
func (c spaceCuts) split(s string, emit func(word string)) {
	if !utf8.ValidString(s) {
		emit(s) // a broken character may swallow a space: merge it as one piece
		return
	}
	from := 0
	for i := 0; ; {
		j := strings.Index(s[i:], space)
		if j < 0 {
			break
		}
		at := i + j
		if at > from {
			if before, _ := utf8.DecodeLastRuneInString(s[from:at]); before != '\u2581' && !c[before] {
				emit(s[from:at])
				from = at
			}
		}
		i = at + len(space)
	}
	if from < len(s) {
		emit(s[from:])
	}
}
