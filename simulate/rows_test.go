package simulate

import (
	"slices"
	"testing"
)

// TestRowsHaveOneOrder: rows that differ in their target alone come in one order, however they were made.
func TestRowsHaveOneOrder(t *testing.T) {
	row := func(target string) Row {
		return Row{Series: "EvicPress", X: X("over", "all"), Metric: "request_rate_gain", Target: target}
	}
	want := []string{"evicpress-fig8/itl-largest", "evicpress-fig8/ttft-largest"}
	for _, rows := range [][]Row{{row(want[0]), row(want[1])}, {row(want[1]), row(want[0])}} {
		sortRows(rows)
		if got := []string{rows[0].Target, rows[1].Target}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
