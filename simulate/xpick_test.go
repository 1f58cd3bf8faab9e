package simulate

import (
	"errors"
	"strings"
	"testing"
)

// TestRowsByX: a key of x that is no parameter leaves the rows that have one of its values; one that no row has, and a value of none, is
// refused by what there is.
func TestRowsByX(t *testing.T) {
	all, err := Run("hillinfer-fig12", nil)
	if err != nil {
		t.Fatal(err)
	}
	some, err := Run("hillinfer-fig12", []string{"batch=8"})
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, r := range all.Rows {
		if r.X["batch"] == 8.0 {
			want++
		}
	}
	if len(some.Rows) != want || want == 0 || want == len(all.Rows) {
		t.Errorf("%d rows of %d, want %d", len(some.Rows), len(all.Rows), want)
	}
	for set, has := range map[string]string{"batch=3": "want some of", "nix=3": "no parameter"} {
		if _, err := Run("hillinfer-fig12", []string{set}); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), has) {
			t.Errorf("%s: %v", set, err)
		}
	}
	if none, err := Run("sliminfer-fig7", nil); err != nil || none.Rows == nil {
		t.Errorf("no rows are nil: %v", err)
	}
}
