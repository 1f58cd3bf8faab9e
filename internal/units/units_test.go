package units

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestParseBytes(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
	}{
		{"0", 0}, {"1", 1}, {"512B", 512}, {"64MiB", 64 << 20}, {"64mib", 64 << 20}, {" 1 GiB ", 1 << 30}, {"2TiB", 2 << 40},
		{"1.5GiB", 3 << 29}, {"0.1KiB", 102}, {"4G", 4 << 30}, {"10kB", 10_000}, {"1GB", 1_000_000_000},
		{"9223372036854775807", math.MaxInt64},
	} {
		got, err := ParseBytes(c.text)
		if err != nil || got != c.want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", c.text, got, err, c.want)
		}
	}
	for _, c := range []struct {
		text string
		want error
	}{
		{"", ErrSyntax}, {"MiB", ErrSyntax}, {"-1", ErrSyntax}, {"1.5", ErrSyntax}, {"1..5KiB", ErrSyntax}, {".", ErrSyntax},
		{"5 parsecs", ErrSyntax}, {"1e9", ErrSyntax}, {"NaN", ErrSyntax}, {"20%", ErrSyntax},
		{"9223372036854775808", ErrRange}, {"8388608TiB", ErrRange}, {strings.Repeat("9", 10000), ErrRange},
	} {
		if _, err := ParseBytes(c.text); !errors.Is(err, c.want) {
			t.Errorf("ParseBytes(%.20q): error %v, want %v", c.text, err, c.want)
		}
	}
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 1023: "1023B", 1024: "1KiB", 1536: "1.5KiB", 64 << 20: "64MiB", 98362432: "93.8MiB", 3 << 40: "3TiB",
		-2048: "-2KiB", math.MinInt64: "-8388608TiB",
	} {
		if got := FormatBytes(n); got != want {
			t.Errorf("FormatBytes(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "7": 7, "8k": 8192, "8K": 8192, "1.5k": 1536, "1m": 1 << 20, "1024": 1024} {
		got, err := ParseCount(text)
		if err != nil || got != want {
			t.Errorf("ParseCount(%q) = %d, %v; want %d", text, got, err, want)
		}
		if back, err := ParseCount(formatCount(got)); err != nil || back != got {
			t.Errorf("ParseCount(FormatCount(%d)) = %d, %v", got, back, err)
		}
	}
	for _, text := range []string{"", "k", "1.5", "1.3k", "-3", "8KiB", "10%", "1_000", "0x10"} {
		if _, err := ParseCount(text); !errors.Is(err, ErrSyntax) {
			t.Errorf("ParseCount(%q): error %v, want ErrSyntax", text, err)
		}
	}
	if _, err := ParseCount("99999999999g"); !errors.Is(err, ErrRange) {
		t.Errorf("ParseCount of a huge count: error %v, want ErrRange", err)
	}
	if formatCount(0) != "0" {
		t.Error("FormatCount(0) must be a plain 0")
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		text    string
		want    Share
		printed string
	}{
		{"20%", Share{Fraction: 0.2}, "0.2"}, {"0.25", Share{Fraction: 0.25}, "0.25"},
		{"100%", Share{Fraction: 1}, "100%"}, {"12.5%", Share{Fraction: 0.125}, "0.125"},
		{"512", Share{Count: 512}, "512"}, {"1k", Share{Count: 1024}, "1k"}, {"0.0001", Share{Fraction: 0.0001}, "0.0001"},
	} {
		got, err := ParseShare(c.text)
		if err != nil || got != c.want || got.String() != c.printed {
			t.Errorf("ParseShare(%q) = %+v (%q), %v; want %+v, %q", c.text, got, got, err, c.want, c.printed)
		}
		if back, err := ParseShare(got.String()); err != nil || back != got {
			t.Errorf("ParseShare(%q) does not come back from %q: %+v, %v", c.text, got, back, err)
		}
	}
	for _, text := range []string{"1", "1.0", "0", "0%", "0.0", "101%", "2.5", "-1", "", "%", "abc", "NaN", "1e-3"} {
		if got, err := ParseShare(text); err == nil {
			t.Errorf("ParseShare(%q) = %+v, want an error", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"64MiB", "8k", "20%", "0.2", "1.5GiB", "-1", "", ".000001", "0.00000001%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseBytes(s); err == nil && n < 0 {
			t.Errorf("ParseBytes(%q) = %d", s, n)
		}
		if n, err := ParseCount(s); err == nil && n < 0 {
			t.Errorf("ParseCount(%q) = %d", s, n)
		}
		if v, err := ParseShare(s); err == nil {
			if back, err := ParseShare(v.String()); err != nil || back != v {
				t.Errorf("ParseShare(%q) = %v does not come back: %v, %v", s, v, back, err)
			}
		}
	})
}
