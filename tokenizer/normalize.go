package tokenizer

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// A Normalizer changes text before it is split. The values come from this
// package's constructors, named as in tokenizer.json.
type Normalizer struct {
	// normalize gives up (false) once the result is longer than most bytes, without having made all of it.
	normalize func(text string, most int) (string, bool)
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

// plainly is a normalizer whose results are no more than a few times as long as what they are made from.
func plainly(f func(text string) string) func(text string, most int) (string, bool) {
	return func(text string, most int) (string, bool) {
		text = f(text)
		return text, len(text) <= most
	}
}

// normalizedMost bounds what normalizers make of a text, in bytes: compatibility forms are at most 18 times as long as what they stand
// for, and a few rules of a file could ask for more memory than there is.
func normalizedMost(textBytes int) int { return 64*textBytes + 256 }

// normalizeAll applies a list of normalizers; first is kept only if none takes
// the start of the text. Errors wrap ErrEncode.
func normalizeAll(list []Normalizer, text string, first bool) (string, bool, error) {
	n, most := len(text), normalizedMost(len(text))
	for _, step := range list {
		first = first && (step.takesStart == nil || !step.takesStart(text))
		var ok bool
		if text, ok = step.normalize(text, most); !ok {
			return "", false, tooLong(n)
		}
	}
	return text, first, nil
}

func tooLong(textBytes int) error {
	return fmt.Errorf("tokenizer: the model's normalizer makes more than %d bytes of %d: %w", normalizedMost(textBytes), textBytes, ErrEncode)
}

// NFC is Unicode's canonical composition.
func NFC() Normalizer {
	return Normalizer{normalize: plainly(unicodeForm(norm.NFC)), shrinks: shrinksComposed}
}

// NFD is canonical decomposition.
func NFD() Normalizer { return Normalizer{normalize: plainly(decomposed), shrinks: shrinksComposed} }

// decomposed is text in canonical decomposition.
var decomposed = unicodeForm(norm.NFD)

// NFKC is compatibility composition.
func NFKC() Normalizer {
	return Normalizer{normalize: plainly(unicodeForm(norm.NFKC)), shrinks: shrinksCompatible}
}

// NFKD is compatibility decomposition.
func NFKD() Normalizer {
	return Normalizer{normalize: plainly(unicodeForm(norm.NFKD)), shrinks: shrinksCompatible}
}

// Lowercase maps every letter to lower case, each by itself: a sigma that ends
// a word stays σ, and İ, alone among all letters, becomes two characters.
func Lowercase() Normalizer {
	return Normalizer{shrinks: 3, normalize: plainly(lower)}
}

func lower(text string) string { return strings.ToLower(strings.ReplaceAll(text, "İ", "i\u0307")) }

// Prepend puts prefix before a text that is not empty.
func Prepend(prefix string) Normalizer {
	return Normalizer{shrinks: 1, normalize: func(text string, most int) (string, bool) {
		if text == "" {
			return "", true
		}
		return prefix + text, len(prefix)+len(text) <= most
	}}
}

// Replace replaces a string wherever it is.
func Replace(old, with string) Normalizer {
	shrinks := 0
	if with != "" {
		shrinks = max(1, (len(old)+len(with)-1)/len(with))
	}
	return Normalizer{
		shrinks: shrinks,
		normalize: func(text string, most int) (string, bool) {
			if n := strings.Count(text, old); n > 0 && len(text)+n*(len(with)-len(old)) > most {
				return "", false
			}
			return strings.ReplaceAll(text, old, with), true
		},
		takesStart: func(text string) bool { return with == "" && old != "" && strings.HasPrefix(text, old) },
	}
}

// ReplaceRegex replaces the matches of a pattern that Go's linear-time engine
// can run; another is ErrUnsupported.
func ReplaceRegex(pattern, with string) (Normalizer, error) {
	if len(pattern) > regexMaxBytes {
		return Normalizer{}, fmt.Errorf("tokenizer: Replace pattern of %d bytes, at most %d: %w", len(pattern), regexMaxBytes, ErrUnsupported)
	}
	plain, err := fromOniguruma(pattern)
	if err != nil {
		return Normalizer{}, err
	}
	re, err := linearRegex(plain, true)
	if err != nil {
		return Normalizer{}, fmt.Errorf("tokenizer: Replace pattern %.80q: %v: %w", pattern, err, ErrUnsupported)
	}
	return Normalizer{
		normalize: func(text string, most int) (string, bool) {
			if text == "" { // has no place to match, not even an empty one
				return text, true
			}
			size := len(text)
			text = re.ReplaceAllStringFunc(text, func(match string) string {
				if size += len(with) - len(match); size > most {
					return ""
				}
				return with
			})
			return text, size <= most
		},
		takesStart: func(text string) bool {
			at := re.FindStringIndex(text)
			return with == "" && at != nil && at[0] == 0 && at[1] > 0
		},
	}, nil
}

// Strip removes white space from either end.
func Strip(left, right bool) Normalizer {
	return Normalizer{
		normalize: plainly(func(text string) string {
			if left {
				text = strings.TrimLeftFunc(text, unicode.IsSpace)
			}
			if right {
				text = strings.TrimRightFunc(text, unicode.IsSpace)
			}
			return text
		}),
		takesStart: func(text string) bool { return left && startsWith(text, unicode.IsSpace) },
	}
}

// StripAccents removes combining marks (of text decomposed before), those that
// take space and those that enclose among them.
func StripAccents() Normalizer {
	return Normalizer{
		normalize:  plainly(withoutMarks),
		takesStart: func(text string) bool { return startsWith(text, unicode.IsMark) },
	}
}

func withoutMarks(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsMark(r) {
			return -1
		}
		return r
	}, text)
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
