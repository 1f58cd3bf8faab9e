package stream

import (
	"fmt"
	"strconv"
	"strings"

	"terrace/internal/units"
)

// ParseBias reads a bias, as String prints it: margin=20%, experts=3, or both. Errors wrap ErrBias.
func ParseBias(text string) (b Bias, err error) {
	given := map[string]bool{}
	for _, part := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		if given[key] {
			return Bias{}, fmt.Errorf("%q: %s is given twice, want margin=SHARE, experts=N or both: %w", text, key, ErrBias)
		}
		given[key] = true
		switch key {
		case "margin":
			share, err := units.ParseShare(value)
			if b.Margin = share.Fraction; err != nil || !(b.Margin > 0 && b.Margin < 1) {
				return Bias{}, fmt.Errorf("%q: margin %q is no share above 0 and below 100%%, such as 20%%: %w", text, value, ErrBias)
			}
		case "experts":
			if b.Experts, err = strconv.Atoi(value); err != nil || b.Experts < 1 {
				return Bias{}, fmt.Errorf("%q: experts %q is no number from 1 on: %w", text, value, ErrBias)
			}
		default:
			return Bias{}, fmt.Errorf("%q: %q is not known, want margin=SHARE, experts=N or both, as in margin=20%%,experts=3: %w", text, key, ErrBias)
		}
	}
	return b, nil
}

// String is the bias as ParseBias reads it; empty where nothing is changed.
func (b Bias) String() string {
	var parts []string
	if b.Margin > 0 {
		parts = append(parts, "margin="+units.Share{Fraction: b.Margin}.String())
	}
	if b.Experts > 0 {
		parts = append(parts, "experts="+strconv.Itoa(b.Experts))
	}
	return strings.Join(parts, ",")
}
