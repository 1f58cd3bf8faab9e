package tokenizer

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// A Normalizer changes text before it is split. The values come from this
// package's constructors, named as in tokenizer.json.
type Normalizer struct {
	normalize func(text string) string
	// takesStart reports whether the start of text vanishes: what is left does
	// not stand at the start of the text. nil: it never does.
	takesStart func(text string) bool
	// shrinks is how many bytes of text a byte of what comes out stands for at most; 0 = any number.
	shrinks int
}

// Unicode's composed characters take no less than a quarter of the bytes of their parts; ASCII a quarter of its compatible letters'.
const (
	shrinksComposed   = 4
	shrinksCompatible = 16
)

// normalizeAll applies a list of normalizers; first is kept only if none takes
// the start of the text.
func normalizeAll(list []Normalizer, text string, first bool) (string, bool) {
	for _, n := range list {
		first = first && (n.takesStart == nil || !n.takesStart(text))
		text = n.normalize(text)
	}
	return text, first
}

// NFC is Unicode's canonical composition.
func NFC() Normalizer { return Normalizer{normalize: unicodeForm(norm.NFC), shrinks: shrinksComposed} }

// NFD is canonical decomposition.
func NFD() Normalizer { return Normalizer{normalize: unicodeForm(norm.NFD), shrinks: shrinksComposed} }

// NFKC is compatibility composition.
func NFKC() Normalizer {
	return Normalizer{normalize: unicodeForm(norm.NFKC), shrinks: shrinksCompatible}
}

// NFKD is compatibility decomposition.
func NFKD() Normalizer {
	return Normalizer{normalize: unicodeForm(norm.NFKD), shrinks: shrinksCompatible}
}

// Lowercase maps every letter to lower case, each by itself: a sigma that ends
// a word stays σ, and İ, alone among all letters, becomes two characters.
func Lowercase() Normalizer {
	return Normalizer{shrinks: 3, normalize: func(text string) string {
		return strings.ToLower(strings.ReplaceAll(text, "İ", "i\u0307"))
	}}
}

// Prepend puts prefix before a text that is not empty.
func Prepend(prefix string) Normalizer {
	return Normalizer{shrinks: 1, normalize: func(text string) string {
		if text == "" {
			return ""
		}
		return prefix + text
	}}
}

// Replace replaces a string wherever it is.
func Replace(old, with string) Normalizer {
	shrinks := 0
	if with != "" {
		shrinks = max(1, (len(old)+len(with)-1)/len(with))
	}
	return Normalizer{
		shrinks:    shrinks,
		normalize:  func(text string) string { return strings.ReplaceAll(text, old, with) },
		takesStart: func(text string) bool { return with == "" && old != "" && strings.HasPrefix(text, old) },
	}
}

// ReplaceRegex replaces the matches of a pattern that Go's linear-time engine
// can run; another is ErrUnsupported.
func ReplaceRegex(pattern, with string) (Normalizer, error) {
	wide, ok := widenClasses(pattern)
	if !ok || len(pattern) > regexMaxBytes {
		return Normalizer{}, fmt.Errorf("tokenizer: Replace pattern %.80q: only patterns of linear time are run here: %w", pattern, ErrUnsupported)
	}
	re, err := regexp.Compile(wide)
	if err != nil {
		return Normalizer{}, fmt.Errorf("tokenizer: Replace pattern %.80q: %v: %w", pattern, err, ErrUnsupported)
	}
	return Normalizer{
		normalize: func(text string) string { return re.ReplaceAllLiteralString(text, with) },
		takesStart: func(text string) bool {
			at := re.FindStringIndex(text)
			return with == "" && at != nil && at[0] == 0 && at[1] > 0
		},
	}, nil
}

// Strip removes white space from either end.
func Strip(left, right bool) Normalizer {
	return Normalizer{
		normalize: func(text string) string {
			if left {
				text = strings.TrimLeftFunc(text, unicode.IsSpace)
			}
			if right {
				text = strings.TrimRightFunc(text, unicode.IsSpace)
			}
			return text
		},
		takesStart: func(text string) bool { return left && startsWith(text, unicode.IsSpace) },
	}
}

// StripAccents removes combining marks (of text decomposed before), those that
// take space and those that enclose among them.
func StripAccents() Normalizer {
	return Normalizer{
		normalize: func(text string) string {
			return strings.Map(func(r rune) rune {
				if unicode.IsMark(r) {
					return -1
				}
				return r
			}, text)
		},
		takesStart: func(text string) bool { return startsWith(text, unicode.IsMark) },
	}
}

func startsWith(text string, is func(r rune) bool) bool { return strings.IndexFunc(text, is) == 0 }

// Precompiled applies SentencePiece's charsmap.
func Precompiled(blob []byte) (Normalizer, error) {
	c, err := newCharsmap(blob)
	if err != nil {
		return Normalizer{}, err
	}
	return Normalizer{normalize: c.normalize}, nil
}
