package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Mark stands in a text before what looks like a control token and is none. It is a character that the text has nowhere else and that no
// text may mean anything by (Unicode's noncharacters U+FDD0 to U+FDEF); "" = nothing in the text looks so.
type Mark string

// newMark is for some words; "" where none of them has a control token.
func (t *Tokenizer) newMark(words []string) (Mark, error) {
	if !slices.ContainsFunc(words, func(s string) bool { return t.marked(s, "?") != s || strings.Contains(s, `\u`) }) {
		return "", nil
	}
	for r := rune(0xFDD0); r <= 0xFDEF; r++ {
		mark := Mark(string(r))
		if !slices.ContainsFunc(words, func(s string) bool { return strings.Contains(s, string(mark)) || strings.Contains(s, mark.escaped()) }) {
			return mark, nil
		}
	}
	return "", fmt.Errorf("tokenizer: the messages have all of Unicode's noncharacters U+FDD0 to U+FDEF: %w", ErrEncode)
}

// escaped is how Python and JSON write the character in quotes, as templates show values.
func (m Mark) escaped() string {
	r, _ := utf8.DecodeRuneInString(string(m))
	return fmt.Sprintf(`\u%04x`, r)
}

// marked is a text with a mark before each of its control tokens. User-defined tokens are recognised in any text, and stay.
func (t *Tokenizer) marked(text string, mark Mark) string {
	var b strings.Builder
	from := 0
	for i := 0; i < len(text); {
		id, end := int32(-1), 0
		if t.all.first[text[i]] {
			id, end = t.all.longest(text, i)
		}
		if id >= 0 && t.vocab.typeOf(int(id)) == TypeUserDefined {
			i = end
			continue
		}
		if id >= 0 {
			b.WriteString(text[from:i])
			b.WriteString(string(mark))
			from = i
		}
		_, n := utf8.DecodeRuneInString(text[i:])
		i += n
	}
	if from == 0 && b.Len() == 0 {
		return text
	}
	b.WriteString(text[from:])
	return b.String()
}
