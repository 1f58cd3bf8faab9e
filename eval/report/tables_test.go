package report

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"
)

// TestTables: CSV has all digits, empty cells for what was not measured, and a line a task; LaTeX escapes; columns that nobody has are left out.
func TestTables(t *testing.T) {
	c := kinds(t, "full", "x_y:budget=0.5")
	g := c.Groups[0]
	g.Series[1].KVRead, g.Series[1].outcomes[0].Modelled = 3<<20, true
	for _, s := range g.Series {
		s.TTFT = 0
	}
	var b bytes.Buffer
	if err := c.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 1+2*4 {
		t.Fatal(len(rows), err)
	}
	cell := func(row int, name string) string {
		for i, h := range rows[0] {
			if h == name {
				return rows[row][i]
			}
		}
		t.Fatalf("no column %s in %v", name, rows[0])
		return ""
	}
	for _, want := range []struct {
		row         int
		name, value string
	}{
		{1, "policy", "full"}, {1, "task", ""}, {1, "kv_read_bytes", ""}, {1, "ttft_ms", ""}, {1, "itl_ms", "5"}, {1, "source", "measured"}, {1, "diff", ""},
		{2, "task", "a"}, {2, "score", "60"}, {2, "kv_held_bytes", "1048576"},
		{5, "policy", "x_y:budget=0.5"}, {5, "kv_read_bytes", "3.145728e+06"}, {5, "source", "modelled"}, {6, "ttft_ms", "200"},
	} {
		if got := cell(want.row, want.name); got != want.value {
			t.Errorf("row %d, %s: %q, want %q", want.row, want.name, got, want.value)
		}
	}
	b.Reset()
	if err := c.WriteLaTeX(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`\begin{tabular}{lrrrrrrrr}`, `\# & policy & score $\pm$ s.e.`, `x\_y:budget=0.5 & 26.67 $\pm$ 1.15`, `b & 30.00 $\pm$ 2.00 & 20.00 $\pm$ 2.00 \\`, "10.0 & 2MiB & 3MiB & 6", "20.0 & 1MiB & -- & 6"} {
		if strings.Contains(b.String(), "TTFT") || !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
	b.Reset()
	if err := c.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if head := strings.Join(strings.Fields(strings.Split(b.String(), "\n")[1]), " "); !strings.HasSuffix(head, "ITL ms KV held KV read KV peak n failed") || strings.Contains(head, "TTFT") {
		t.Error(head)
	}
}

// TestSpellings: one policy in other words is the one that others are measured against, and its series are told apart by run; builds that
// differ are said.
func TestSpellings(t *testing.T) {
	score := func(_, _ string, i int) float64 { return 0.5 + 0.01*float64(i%2) }
	a := makeRun(t, "s", []string{"full", "snapkv:budget=50%"}, []string{"a"}, 9, score, nil)
	b := makeRun(t, "s", []string{"full", "snap-kv:window=64"}, []string{"a"}, 9, score, nil)
	runs, err := Load([]string{a, b})
	if err != nil {
		t.Fatal(err)
	}
	runs[1].Results.Options.Version, runs[1].Name = "v2", "second"
	c, err := Compare(runs, "snapkv")
	if err != nil {
		t.Fatal(err)
	}
	g := c.Groups[0]
	if g.Series[1].Label != "snapkv:budget=50% · my-run" || g.Series[3].Label != "snap-kv:window=64 · second" || g.Series[2].Diff == nil {
		t.Errorf("%s, %s, %v", g.Series[1].Label, g.Series[3].Label, g.Series[2].Diff)
	}
	if notes := strings.Join(g.Notes, "\n"); !strings.Contains(notes, "times are not of one build and machine: my-run (v1, cpu, ); second (v2, cpu, )") {
		t.Error(notes)
	}
}
