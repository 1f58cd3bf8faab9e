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
		if len(s.Bounds) != c.held || len(s.Broken) != c.missed || s.Total() != 0 {
			t.Errorf("%s: %+v", c.e.ID, s)
		}
	}
}

// TestPageCounts: a value holds within a tenth by the product's code; formulas, bands, limits and what another figure prints are counted apart.
func TestPageCounts(t *testing.T) {
	row := func(target string, v float64, kind Kind) Row {
		paper := targets()[target].Value
		return Row{Target: target, Metric: targets()[target].Metric, Value: v, Paper: &paper, Kind: kind, Source: "modelled"}
	}
	banded := row("hillinfer-fig13/speedup-smallest", 3, Sensitivity)
	low, high := 2.0, 5.0
	banded.Low, banded.High = &low, &high
	again := row("hillinfer-fig12/reduction-smallest", 76.25, Sensitivity)
	again.Low, again.High = &low, &high
	for name, c := range map[string]struct {
		r    Row
		own  bool
		want [7]int // held, formula, banded, missed, bounds, broken, again
	}{
		"own code, 9 % off":     {row("hillinfer-fig13/speedup-smallest", 4.21*1.09, Predicted), true, [7]int{1}},
		"a formula, 9 % off":    {row("hillinfer-fig13/speedup-smallest", 4.21*1.09, Predicted), false, [7]int{1: 1}},
		"own code, 11 % off":    {row("hillinfer-fig13/speedup-smallest", 4.21*1.11, Predicted), true, [7]int{3: 1}},
		"in a band":             {banded, true, [7]int{2: 1}},
		"a limit":               {row("hillinfer-fig14/h2o-like", targets()["hillinfer-fig14/h2o-like"].Value*2, Predicted), true, [7]int{4: 1}},
		"a limit that is not":   {row("hillinfer-fig14/h2o-like", targets()["hillinfer-fig14/h2o-like"].Value/2, Predicted), true, [7]int{5: 1}},
		"what is printed again": {again, true, [7]int{6: 1}},
	} {
		var s shown
		s.judge(c.r, c.own)
		if got := [7]int{len(s.Held), len(s.Formula), len(s.Banded), len(s.Missed), len(s.Bounds), len(s.Broken), len(s.Again)}; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
