package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

var countUnits = map[string]int64{"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

// ParseCount reads a count of tokens, layers or the like: a decimal number with an optional k (1024), m (1024²) or g.
// `8k` is 8192 and `1.5k` is 1536; a count that does not come out whole, negative or empty text, and more than an int
// holds, are errors.
func ParseCount(s string) (int, error) {
	number, unit := split(s)
	scale, ok := countUnits[strings.ToLower(unit)]
	if number == "" || !ok {
		return 0, fmt.Errorf("units: count %q: want a whole number or one with k, such as 8k: %w", s, ErrSyntax)
	}
	n, err := scaled(number, scale, true)
	if err != nil {
		return 0, fmt.Errorf("units: count %q: %w", s, err)
	}
	if n > math.MaxInt {
		return 0, fmt.Errorf("units: count %q: %w", s, ErrRange)
	}
	return int(n), nil
}

// formatCount prints a count as ParseCount reads it: `8k` where it is a whole number of 1024, otherwise in full.
func formatCount(n int) string {
	if n != 0 && n%(1<<10) == 0 {
		return strconv.Itoa(n>>10) + "k"
	}
	return strconv.Itoa(n)
}

// Share is a part of a whole: either a fraction of it or a count of its members.
type Share struct {
	// Fraction of the whole, above 0 and at most 1; 0 where the share is a count.
	Fraction float64
	// Count of members; used where Fraction is 0.
	Count int
}

// ParseShare reads a share: `20%` (above 0 % and at most 100 %), a fraction below 1 (`0.2`), or a count (`1024`, `1k`).
// A bare `1` is refused because it could mean everything or one member: write `100%` for the first.
func ParseShare(s string) (Share, error) {
	text := strings.TrimSpace(s)
	if p, ok := strings.CutSuffix(text, "%"); ok {
		f, err := parseDecimal(p)
		if err != nil || f/100 <= 0 || f > 100 {
			return Share{}, fmt.Errorf("units: share %q: want above 0%% and at most 100%%: %w", s, ErrRange)
		}
		return Share{Fraction: f / 100}, nil
	}
	if f, err := parseDecimal(text); err == nil && strings.Contains(text, ".") {
		switch {
		case f > 0 && f < 1:
			return Share{Fraction: f}, nil
		case f == 1:
			return Share{}, fmt.Errorf("units: share %q is ambiguous: write 100%% for everything: %w", s, ErrRange)
		}
		return Share{}, fmt.Errorf("units: share %q: a fraction must be above 0 and below 1: %w", s, ErrRange)
	}
	n, err := ParseCount(text)
	if err != nil {
		return Share{}, fmt.Errorf("units: share %q: want 20%%, a fraction below 1 or a count such as 1k: %w", s, ErrSyntax)
	}
	switch n {
	case 0:
		return Share{}, fmt.Errorf("units: share %q: want more than nothing: %w", s, ErrRange)
	case 1:
		return Share{}, fmt.Errorf("units: share %q is ambiguous: write 100%% for everything: %w", s, ErrRange)
	}
	return Share{Count: n}, nil
}

// String prints the share as ParseShare reads it back.
func (s Share) String() string {
	if s.Fraction > 0 {
		if s.Fraction < 1 {
			return strconv.FormatFloat(s.Fraction, 'f', -1, 64)
		}
		return "100%"
	}
	return formatCount(s.Count)
}

// parseDecimal reads a plain decimal number: no sign, exponent, NaN or Inf.
func parseDecimal(s string) (float64, error) {
	number, unit := split(s)
	if number == "" || unit != "" {
		return 0, ErrSyntax
	}
	return strconv.ParseFloat(number, 64)
}
