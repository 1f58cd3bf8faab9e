package offload

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRatesThatCannotBe: a profile with a number that no hardware has is refused, and the number named.
func TestRatesThatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		`{"version": 1, "host": {"copy": -5}}`:                                  "host.copy is -5",
		`{"version": 1, "host": {"copy": 1e300}}`:                               "host.copy is 1e+300",
		`{"version": 1, "host": {"copy": 1e9}, "storage": [{}, {"write": -1}]}`: "storage[1].write is -1",
		`{"version": 1, "host": {"copy": NaN}}`:                                 "invalid character",
	} {
		path := filepath.Join(t.TempDir(), "profile.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadProfile(path); !errors.Is(err, ErrShape) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
