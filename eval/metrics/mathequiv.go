package metrics

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MathEquivalent is is_equiv of MATH's authors (hendrycks/math, modeling/math_equivalence.py): equal texts after their normalisation of
// fractions, roots, units, spaces and signs; where the normalisation raises there, equal texts as they are. It computes nothing: 0.5 is
// 1/2, and 0.25 is not 1/4.
func MathEquivalent(a, b string) bool {
	x, ok := stripMath(a)
	y, fine := stripMath(b)
	if ok && fine {
		return x == y
	}
	return a == b
}

// LastBoxed is what stands in the last \boxed{…} of a text, as remove_boxed(last_boxed_only_string(…)) there; false where there is none, or
// where it is an \fbox.
func LastBoxed(s string) (string, bool) {
	at := strings.LastIndex(s, `\boxed`)
	if at < 0 {
		return "", false
	}
	open := 0
	for i := at; i < len(s); i++ {
		switch s[i] {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return strings.CutPrefix(s[at:i], `\boxed{`)
			}
		}
	}
	return "", false
}

// stripMath is _strip_string; false where it raises.
func stripMath(s string) (string, bool) {
	s = strings.ReplaceAll(s, "\n", "")
	s = strings.ReplaceAll(s, `\!`, "")
	s = strings.ReplaceAll(s, `\\`, `\`)
	s = strings.ReplaceAll(s, "tfrac", "frac")
	s = strings.ReplaceAll(s, "dfrac", "frac")
	s = strings.ReplaceAll(s, `\left`, "")
	s = strings.ReplaceAll(s, `\right`, "")
	s = strings.ReplaceAll(s, `^{\circ}`, "")
	s = strings.ReplaceAll(s, `^\circ`, "")
	s = strings.ReplaceAll(s, `\$`, "")
	if parts := strings.Split(s, `\text{ `); len(parts) > 2 { // units stand at the right
		return "", false
	} else if len(parts) == 2 {
		s = parts[0]
	}
	s = strings.ReplaceAll(s, `\%`, "")
	s = strings.ReplaceAll(s, " .", " 0.")
	s = strings.ReplaceAll(s, "{.", "{0.")
	if s == "" {
		return s, true
	}
	if s[0] == '.' {
		s = "0" + s
	}
	if left, right, ok := strings.Cut(s, "="); ok && !strings.Contains(right, "=") && utf8.RuneCountInString(left) <= 2 {
		s = right
	}
	s, ok := fixRoots(s)
	if !ok {
		return "", false
	}
	s = strings.ReplaceAll(s, " ", "")
	if s, ok = fixFractions(s); !ok {
		return "", false
	}
	if s == "0.5" {
		s = `\frac{1}{2}`
	}
	if m := slash.FindStringSubmatch(s); m != nil {
		s = `\frac{` + m[1] + "}{" + m[2] + "}"
	}
	return s, true
}

// slash is a fraction of two numbers as Python prints them.
var slash = regexp.MustCompile(`^(0|-?[1-9][0-9]*)/(0|-?[1-9][0-9]*)$`)

// fixRoots puts the first sign behind \sqrt in braces; false where there is none.
func fixRoots(s string) (string, bool) {
	parts := strings.Split(s, `\sqrt`)
	out := parts[0]
	for _, part := range parts[1:] {
		if part == "" {
			return "", false
		}
		if out += `\sqrt`; part[0] == '{' {
			out += part
			continue
		}
		_, n := utf8.DecodeRuneInString(part)
		out += "{" + part[:n] + "}" + part[n:]
	}
	return out, true
}

// fixFractions puts the two signs behind \frac in braces; false where nothing stands there.
func fixFractions(s string) (string, bool) {
	parts := strings.Split(s, `\frac`)
	out := parts[0]
	for _, part := range parts[1:] {
		if part == "" {
			return "", false
		}
		if out += `\frac`; part[0] == '{' {
			out += part
			continue
		}
		signs := []rune(part)
		if len(signs) < 2 {
			return s, true
		}
		a, b, rest := string(signs[0]), string(signs[1]), string(signs[2:])
		if b != "{" {
			b = "{" + b + "}"
		}
		out += "{" + a + "}" + b + rest
	}
	return out, true
}

// Integer is the whole number in an answer of a competition, as "073" or "\boxed{73}" gives 73; false for anything else.
func Integer(s string) (int, bool) {
	s, _ = stripMath(s)
	n, err := strconv.Atoi(strings.TrimSpace(strings.ReplaceAll(strings.Trim(s, "$"), ",", "")))
	return n, err == nil
}

var wholeNumber = regexp.MustCompile(`[0-9]+`)

// LastInteger is the last whole number of a text.
func LastInteger(s string) (int, bool) {
	all := wholeNumber.FindAllString(s, -1)
	if all == nil {
		return 0, false
	}
	n, err := strconv.Atoi(all[len(all)-1])
	return n, err == nil
}
