package metrics

import (
	"strings"
	"unicode"
)

// asciiPunctuation is Python's string.punctuation.
const asciiPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// isSpace is str.isspace: Unicode white space and the four ASCII separators that Go leaves out.
func isSpace(r rune) bool { return unicode.IsSpace(r) || (r >= 0x1c && r <= 0x1f) }

// fields is str.split() without arguments.
func fields(s string) []string { return strings.FieldsFunc(s, isSpace) }

// isWord is \w of Python's re on str.
func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }

// lower is str.lower: Go's mapping, with the two rules of full case mapping: İ becomes two runes, and Σ at the end of a
// word becomes ς.
func lower(s string) string {
	if !strings.ContainsAny(s, "İΣ") {
		return strings.ToLower(s)
	}
	var out strings.Builder
	runes := []rune(s)
	for i, r := range runes {
		switch {
		case r == 'İ':
			out.WriteString("i\u0307")
		case r == 'Σ' && casedBeside(runes, i, -1) && !casedBeside(runes, i, 1):
			out.WriteRune('ς')
		default:
			out.WriteRune(unicode.ToLower(r))
		}
	}
	return out.String()
}

// casedBeside reports whether the next rune in a direction, case-ignorable ones skipped, is cased.
func casedBeside(runes []rune, i, step int) bool {
	for i += step; i >= 0 && i < len(runes); i += step {
		if !caseIgnorable(runes[i]) {
			return unicode.In(runes[i], unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase)
		}
	}
	return false
}

func caseIgnorable(r rune) bool {
	return strings.ContainsRune("'.:·\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a", r) ||
		unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}

// without drops the runes of a set.
func without(s, set string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(set, r) {
			return -1
		}
		return r
	}, s)
}

// digits is re.findall(r"\d+", s): runs of Unicode decimal digits.
func digits(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsDigit(r) })
}

// replaceArticles is re.sub(r"\b(a|an|the)\b", " ", s).
func replaceArticles(s string) string {
	var out strings.Builder
	runes := []rune(s)
	for i := 0; i < len(runes); {
		end := i
		for end < len(runes) && isWord(runes[end]) {
			end++
		}
		if end == i {
			out.WriteRune(runes[i])
			i++
			continue
		}
		switch word := string(runes[i:end]); word {
		case "a", "an", "the":
			out.WriteByte(' ')
		default:
			out.WriteString(word)
		}
		i = end
	}
	return out.String()
}
