package units

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Sizes in bytes.
const (
	KiB int64 = 1 << 10
	MiB int64 = 1 << 20
	GiB int64 = 1 << 30
	TiB int64 = 1 << 40
)

var byteUnits = map[string]int64{
	"": 1, "b": 1,
	"kib": KiB, "mib": MiB, "gib": GiB, "tib": TiB,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"k": KiB, "m": MiB, "g": GiB, "t": TiB,
}

// ParseBytes reads a size: a decimal number, then an optional unit in any case (B, KiB, MiB, GiB, TiB binary; kB, MB, GB,
// TB decimal; a lone K, M, G or T binary). A fraction is allowed where it comes out at whole bytes or the unit is at least
// KiB (`1.5GiB`); the rest of a byte is cut off. Negative and empty text, and more than an int64 holds, are errors.
func ParseBytes(s string) (int64, error) {
	number, unit := split(s)
	scale, ok := byteUnits[strings.ToLower(unit)]
	if number == "" || !ok {
		return 0, fmt.Errorf("units: size %q: want a number with B, KiB, MiB, GiB or TiB, such as 64MiB: %w", s, ErrSyntax)
	}
	n, err := scaled(number, scale, scale == 1)
	if err != nil {
		return 0, fmt.Errorf("units: size %q: %w", s, err)
	}
	return n, nil
}

// FormatBytes prints a size so that ParseBytes reads about the same size back: exact (`64MiB`, `512B`) where the size is a
// whole number of the largest unit that fits, otherwise with one decimal (`1.5GiB`). Negative sizes keep their sign.
func FormatBytes(sizeBytes int64) string {
	if sizeBytes < 0 {
		if sizeBytes == math.MinInt64 {
			return "-8388608TiB"
		}
		return "-" + FormatBytes(-sizeBytes)
	}
	for _, u := range []struct {
		size int64
		name string
	}{{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if sizeBytes < u.size {
			continue
		}
		if sizeBytes%u.size == 0 {
			return strconv.FormatInt(sizeBytes/u.size, 10) + u.name
		}
		return strconv.FormatFloat(float64(sizeBytes)/float64(u.size), 'f', 1, 64) + u.name
	}
	return strconv.FormatInt(sizeBytes, 10) + "B"
}

// split cuts text into a leading decimal number and the unit behind it, both without surrounding spaces.
func split(s string) (number, unit string) {
	s = strings.TrimSpace(s)
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
		i++
	}
	number = s[:i]
	if number == "." || strings.Count(number, ".") > 1 {
		return "", s
	}
	return number, strings.TrimSpace(s[i:])
}

// scaled multiplies a decimal number by a scale without rounding in between and cuts the result to an integer; with whole
// set, a result that would have to be cut is an error.
func scaled(number string, scale int64, whole bool) (int64, error) {
	if len(number) > 64 {
		return 0, ErrRange
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, ErrSyntax
	}
	r.Mul(r, new(big.Rat).SetInt64(scale))
	if whole && !r.IsInt() {
		return 0, fmt.Errorf("want a whole number: %w", ErrSyntax)
	}
	q := new(big.Int).Quo(r.Num(), r.Denom())
	if !q.IsInt64() {
		return 0, ErrRange
	}
	return q.Int64(), nil
}
