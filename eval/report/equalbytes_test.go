package report

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
)

// budgetRun is a run of full and of policies at budgets: KVHeld is k MiB for the k-th policy of 8, full's is 8 MiB; KVRead half of it.
func budgetRun(t *testing.T, policies []string, mib map[string]float64, score func(policy string, i int) float64) *Comparison {
	t.Helper()
	dir := makeRun(t, "s", policies, []string{"a", "b"}, 9, func(p, _ string, i int) float64 { return score(p, i) }, nil)
	runs, err := Load([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	for i := range runs[0].Results.Policies {
		p := &runs[0].Results.Policies[i]
		p.KVHeld, p.KVRead = map[string]int64{"host": int64(mib[p.Policy] * (1 << 20))}, mib[p.Policy]/2*(1<<20)
	}
	c, err := Compare(runs, Full)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func seriesOf(g *Group, part string) *Series {
	for _, s := range g.Series {
		if strings.Contains(s.Policy, part) {
			return s
		}
	}
	return nil
}

// TestAtBytes: at 40 % of full's 8 MiB (3.2 MiB) a policy that was run at 2 and 6 MiB is 0.3 of the way between its two budgets, in score,
// interval and bytes; what is not on both sides is named and not guessed; a budget at the point stands as it is.
func TestAtBytes(t *testing.T) {
	policies := []string{"full", "snapkv:budget=0.25", "snapkv:budget=0.75", "knorm:budget=0.6", "tova:budget=0.4", "lagkv:budget=0.42", "lagkv:budget=0.2"}
	mib := map[string]float64{"full": 8, "snapkv:budget=0.25": 2, "snapkv:budget=0.75": 6, "knorm:budget=0.6": 5, "tova:budget=0.4": 3.21, "lagkv:budget=0.42": 3.36, "lagkv:budget=0.2": 1.6}
	loss := map[string]float64{"snapkv:budget=0.25": 0.2, "snapkv:budget=0.75": 0.1, "knorm:budget=0.6": 0.1, "tova:budget=0.4": 0.05}
	c := budgetRun(t, policies, mib, func(p string, i int) float64 { return 0.5 + 0.02*float64(i) - loss[p] })
	at, err := c.AtBytes(BytesPoint{Share: 0.4})
	if err != nil {
		t.Fatal(err)
	}
	g := at.Groups[0]
	if len(g.Series) != 4 || g.Series[0].Policy != "full" || g.Series[0].Diff != nil {
		t.Fatalf("%d series, first %s", len(g.Series), g.Series[0].Policy)
	}
	s := seriesOf(g, "snapkv")
	if s.Policy != "snapkv (30 % of budget=0.75, the rest budget=0.25)" || len(s.Between) != 2 || s.Between[1] != (PolicyPart{"snapkv:budget=0.75", 0.3}) && math.Abs(s.Between[1].Weight-0.3) > 1e-6 {
		t.Errorf("%s, %v", s.Policy, s.Between)
	}
	if s.Diff == nil || math.Abs(s.Diff.Diff+17) > 1e-4 || math.Abs(s.Diff.Low+17) > 1e-4 || s.Diff.Pairs != 18 {
		t.Errorf("difference %v, want -0.7·20 - 0.3·10 = -17 points on 18 pairs, without noise", s.Diff)
	}
	if math.Abs(*s.Score-(58-17)) > 1e-4 || math.Abs(float64(total(s.KVHeld))-3.2*(1<<20)) > 2 || s.N != 18 {
		t.Errorf("score %v, %d bytes, n %d", *s.Score, total(s.KVHeld), s.N)
	}
	if s := seriesOf(g, "tova"); s == nil || s.Policy != "tova:budget=0.4" || math.Abs(s.Diff.Diff+5) > 1e-6 {
		t.Errorf("a budget within a hundredth of the point: %+v", s)
	}
	if s := seriesOf(g, "lagkv"); s == nil || len(s.Between) != 2 {
		t.Errorf("a budget a twentieth off the point is no point: %+v", s)
	}
	if notes := strings.Join(g.Notes, "\n"); !strings.Contains(notes, "knorm: measured at 62.5 % of the bytes, not on both sides of 40 %") {
		t.Error(notes)
	}
	var b bytes.Buffer
	for _, write := range []func() error{func() error { return at.WriteText(&b) }, func() error { return at.WriteCSV(&b) }, func() error { return at.WriteLaTeX(&b) }, func() error { return at.WriteHTML(&b, "t") }} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(b.String(), "30 % of budget=0.75") {
		t.Error(b.String())
	}
	if _, err := c.AtBytes(BytesPoint{Share: 0.1}); !errors.Is(err, ErrNothing) {
		t.Errorf("no policy around the point: %v", err)
	}
	// A step reads half as many bytes: the same shares.
	if read, err := c.AtBytes(BytesPoint{Read: true, Share: 0.4}); err != nil || seriesOf(read.Groups[0], "snapkv").Policy != s.Policy {
		t.Error(read, err)
	}
}

// TestAtBytesFailures: in percentages a failed sample counts 0 on its side of the point, and is counted as failed only where both failed.
func TestAtBytesFailures(t *testing.T) {
	mib := map[string]float64{"full": 8, "snapkv:budget=0.25": 2, "snapkv:budget=0.75": 6}
	c := budgetRun(t, []string{"full", "snapkv:budget=0.25", "snapkv:budget=0.75"}, mib, func(p string, i int) float64 {
		if p == "snapkv:budget=0.25" && i == 0 {
			return math.NaN()
		}
		return 0.5
	})
	at, err := c.AtBytes(BytesPoint{Share: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	// 8 of 9 samples a task lose nothing, one half of 50 points.
	if s := seriesOf(at.Groups[0], "snapkv"); math.Abs(s.Diff.Diff+25.0/9) > 1e-6 || s.Failed != 0 {
		t.Errorf("%v, %d failed", s.Diff, s.Failed)
	}
}

// TestBytesPoints: what can be said on the command line.
func TestBytesPoints(t *testing.T) {
	for text, want := range map[string]BytesPoint{"25%": {true, 0.25}, "read=0.1": {true, 0.1}, "held=50%": {false, 0.5}, "held=1": {false, 1}} {
		if p, err := ParseBytesPoint(text); err != nil || p != want {
			t.Errorf("%s: %v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "0", "-5%", "101%", "NaN", "kept=25%", "25%%", "Inf"} {
		if _, err := ParseBytesPoint(text); !errors.Is(err, ErrPoint) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestVerdicts: pictures say which series are worse than full by their whole interval, and draw the difference over the share of bytes.
func TestVerdicts(t *testing.T) {
	mib := map[string]float64{"full": 8, "snapkv:budget=0.25": 2, "snapkv:budget=0.75": 6, "tova": 4}
	c := budgetRun(t, []string{"full", "snapkv:budget=0.25", "snapkv:budget=0.75", "tova"}, mib, func(p string, i int) float64 {
		switch p {
		case "snapkv:budget=0.25":
			return 0.3
		case "snapkv:budget=0.75":
			return 0.5 + 0.1*float64(i%2*2-1)
		case "tova":
			return 0.6
		}
		return 0.5
	})
	g := c.Groups[0]
	const want = "Worse than full: 2; better: 4; not told apart: 3."
	draw := charts{g}
	over := draw.budgetCharts()
	if len(over) != 2 || over[0].Caption != want || len(over[0].Points) != 3 || len(over[0].Lines) != 2 {
		t.Fatalf("%d charts, %+v", len(over), over)
	}
	if ticks := over[0].XTicks; ticks[len(ticks)-1].Label != "80" {
		t.Errorf("axis of shares %v", ticks)
	}
	// 2, 6 and 4 of 8 MiB on an axis from 0 to 80 %.
	p := over[0].Points
	if d := (p[1].X - p[0].X) / (p[2].X - p[0].X); math.Abs(d-2) > 1e-9 || !(p[2].Y < p[1].Y && p[1].Y < p[0].Y) {
		t.Errorf("points %v", p)
	}
	for _, f := range draw.fronts() {
		if f.Caption != want {
			t.Errorf("%s: %s", f.Title, f.Caption)
		}
	}
	for _, d := range draw.scoreCharts() {
		if d.Caption != want {
			t.Errorf("%s: %s", d.Title, d.Caption)
		}
	}
	var svg, page bytes.Buffer
	if err := g.WritePicture(&svg, "note"); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteHTML(&page, "t"); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{svg.String(), page.String()} {
		if !strings.Contains(text, want) {
			t.Errorf("no verdict in\n%s", text)
		}
	}
	g.Metric.Kind = "perplexity"
	if got := draw.verdict(func(s *Series) *Interval { return s.Diff }); got != "Worse than full: 4; better: 2; not told apart: 3." {
		t.Errorf("where less is better: %s", got)
	}
}
