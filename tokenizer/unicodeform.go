package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxMarks is the number of combining marks in a row up to which x/text gives
// Unicode's normal forms. After so many it puts U+034F into the text (the
// stream-safe form of UAX #15, section 13), which the tokenizers that models
// were trained with do not.
const maxMarks = 30

// unicodeForm returns a normal form of Unicode, of any number of marks in a row.
func unicodeForm(form norm.Form) func(text string) string {
	return func(text string) string {
		if !hasLongMarks(text) {
			return form.String(text)
		}
		runes := decompose(text, form == norm.NFKC || form == norm.NFKD)
		if form == norm.NFC || form == norm.NFKC {
			runes = compose(runes)
		}
		return string(runes)
	}
}

// hasLongMarks reports whether text may decompose into more than maxMarks
// combining marks in a row.
func hasLongMarks(text string) bool {
	run := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			run, i = 0, i+1
			continue
		}
		if text[i] < 0xCC { // before U+0300, the first mark
			run, i = 3, i+2
			continue
		}
		p := norm.NFKD.PropertiesString(text[i:])
		i += max(p.Size(), 1)
		if p.CCC() == 0 {
			run = 0
		}
		// No character decomposes into more than three marks after its first.
		if run += 3; p.CCC() == 0 && p.Decomposition() == nil {
			run = 0
		}
		if run >= maxMarks {
			return true
		}
	}
	return false
}

// decompose returns the characters of the full decomposition of text, marks in
// canonical order.
func decompose(text string, compatible bool) []rune {
	form := norm.NFD
	if compatible {
		form = norm.NFKD
	}
	runes := make([]rune, 0, len(text))
	for i := 0; i < len(text); {
		p := form.PropertiesString(text[i:])
		size := max(p.Size(), 1)
		runes = append(runes, []rune(form.String(text[i:i+size]))...)
		i += size
	}
	for i := 0; i < len(runes); {
		end := i
		for end < len(runes) && combiningClass(runes[end]) != 0 {
			end++
		}
		slices.SortStableFunc(runes[i:end], func(a, b rune) int { return int(combiningClass(a)) - int(combiningClass(b)) })
		i = end + 1
	}
	return runes
}

// compose joins the characters of a decomposition as UAX #15 says: each with the
// last one of class 0, unless one of its own class or a higher one, or another
// of class 0, stands between.
func compose(runes []rune) []rune {
	out := runes[:0]
	starter := -1 // index in out
	last := uint8(0)
	for _, r := range runes {
		class := combiningClass(r)
		adjacent := starter == len(out)-1
		if starter >= 0 && (adjacent || last != 0 && last < class) {
			if joined, ok := composite(out[starter], r); ok {
				out[starter] = joined
				continue
			}
		}
		if class == 0 {
			starter = len(out)
		}
		last = class
		out = append(out, r)
	}
	return out
}

// composite returns the one character that a and b compose to.
func composite(a, b rune) (rune, bool) {
	var text strings.Builder
	text.WriteRune(a)
	text.WriteRune(b)
	joined := norm.NFC.String(text.String())
	r, n := utf8.DecodeRuneInString(joined)
	return r, n == len(joined)
}

func combiningClass(r rune) uint8 {
	if r < utf8.RuneSelf {
		return 0
	}
	var buf [utf8.UTFMax]byte
	return norm.NFD.Properties(buf[:utf8.EncodeRune(buf[:], r)]).CCC()
}
