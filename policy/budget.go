package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"terrace/internal/units"
)

// Budget is how much of a context is kept: a share of it, a number of tokens, a number of bytes, or what is left when a
// ratio is removed. The zero value is no budget: everything is kept.
type Budget struct {
	share units.Share
	bytes int64   // > 0: bytes of K and V over the layers that the policy acts on
	ratio float64 // part removed, where removed is set
	kind  budgetKind
	text  string
}

type budgetKind uint8

const (
	budgetNone budgetKind = iota
	budgetShare
	budgetBytes
	budgetRatio
)

// parseBudget reads what is kept: a fraction below 1 (`0.2`), `20%`, a count of tokens (`1024`, `1k`) or a size in bytes
// with its unit (`64MiB`). A bare 1 is refused as ambiguous; everything is `100%`.
func parseBudget(s string) (Budget, error) {
	if strings.HasSuffix(strings.ToLower(s), "b") {
		n, err := units.ParseBytes(s)
		if err != nil {
			return Budget{}, err
		}
		if n <= 0 {
			return Budget{}, fmt.Errorf("budget %q: want more than nothing: %w", s, units.ErrRange)
		}
		return Budget{kind: budgetBytes, bytes: n, text: s}, nil
	}
	share, err := units.ParseShare(s)
	if err != nil {
		return Budget{}, err
	}
	return Budget{kind: budgetShare, share: share, text: s}, nil
}

// parseRatio reads the part removed, from 0 and below 1 (kvpress's compression_ratio), or a percentage.
func parseRatio(s string) (Budget, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return Budget{}, fmt.Errorf("ratio %q: want the part removed, from 0 and below 1: %w", s, units.ErrSyntax)
	}
	if percent {
		f /= 100
	}
	if !(f >= 0 && f < 1) {
		return Budget{}, fmt.Errorf("ratio %q: want the part removed, from 0 and below 1: %w", s, units.ErrRange)
	}
	return Budget{kind: budgetRatio, ratio: f, text: s}, nil
}

// tokensBudget is a budget of a fixed number of tokens.
func tokensBudget(n int) Budget {
	return Budget{kind: budgetShare, share: units.Share{Count: n}, text: strconv.Itoa(n)}
}

// Removes reports whether the budget was given as a ratio to remove (of the prompt, once) and not as what is kept.
func (b Budget) Removes() bool { return b.kind == budgetRatio }

// proportional reports whether the budget is a part of the text, and not a number of tokens or bytes.
func (b Budget) proportional() bool {
	return b.kind == budgetRatio || b.kind == budgetShare && b.share.Fraction > 0
}

// Float is the budget of n tokens before rounding; kvBytes is [Layer].KVBytes.
func (b Budget) Float(n, kvBytes int) float64 {
	switch b.kind {
	case budgetRatio:
		return float64(n) * (1 - b.ratio)
	case budgetBytes:
		return math.Min(float64(b.bytes)/float64(max(kvBytes, 1)), float64(n))
	case budgetShare:
		if b.share.Fraction > 0 {
			return b.share.Fraction * float64(n)
		}
		return float64(min(b.share.Count, n))
	}
	return float64(n)
}

// Tokens is the number of tokens kept of n: the budget rounded down, at least 1 and at most n. A ratio is rounded exactly
// as kvpress does, int(n·(1-ratio)); a share has a tolerance of 1e-9 for its binary fraction (29 % of 100 is 29).
func (b Budget) Tokens(n, kvBytes int) int {
	f := b.Float(n, kvBytes)
	if b.kind == budgetShare {
		f += 1e-9
	}
	return min(max(int(f), 1), n)
}

// Of is the number of tokens kept per KV head of a layer that has passed n tokens.
func (b Budget) Of(l *Layer, n int) int { return b.Tokens(n, l.KVBytes) }

// String is the text that the budget was read from.
func (b Budget) String() string { return b.text }
