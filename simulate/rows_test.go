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

// TestPageJudgesOrders: what a paper says of several rows counts as one prediction that holds or does not.
func TestPageJudgesOrders(t *testing.T) {
	row := func(series string, x map[string]any, metric string, v float64) Row {
		return Row{Series: series, X: x, Metric: metric, Value: v, Kind: Predicted, Source: "modelled"}
	}
	order := func(a, b, c float64) *Result {
		return &Result{ID: "hillinfer-fig16a", Rows: []Row{row("Prefetch-based", X(), "latency_s", c), row("+HKM", X(), "latency_s", b), row("+HKM & APP", X(), "latency_s", a)}}
	}
	falls := func(v ...float64) *Result {
		e := &Result{ID: "instinfer-fig17b"}
		for i, v := range v {
			e.Rows = append(e.Rows, row("InstI-SparF", X("batch", 256, "csds", 1, "ratio", float64(i)), "tokens_per_s", v))
		}
		return e
	}
	for _, c := range []struct {
		e            *Result
		held, missed int
	}{{order(1, 2, 3), 1, 0}, {order(2, 1, 3), 0, 1}, {order(1, 3, 3), 0, 1}, {falls(4, 3, 2, 1), 1, 0}, {falls(4, 3, 3, 1), 0, 1}, {falls(3, 2, 1), 0, 1}} {
		var s shown
		s.judgeOrders(c.e)
		if len(s.Held) != c.held || len(s.Missed) != c.missed {
			t.Errorf("%s: %+v", c.e.ID, s)
		}
	}
}
