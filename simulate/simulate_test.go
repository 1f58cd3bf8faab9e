package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// slow are experiments that place thousands of contexts; one of them stands for all.
var slow = []string{"evicpress-fig8", "evicpress-fig9", "evicpress-fig10", "evicpress-fig12", "evicpress-fig7", "scale-servers", "expert-stream", "hillinfer-fig7", "hillinfer-alpha", "hillinfer-built", "hillinfer-beta", "instinfer-built", "instinfer-fig17a"}

// TestEveryExperiment: each answers with rows of the promised form, the same bytes twice, and never calls what may not be fitted
// calibrated.
func TestEveryExperiment(t *testing.T) {
	for _, l := range List() {
		if slices.Contains(slow, l.ID) {
			continue
		}
		r, err := Run(l.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Run(l.ID, nil)
		a, _ := json.Marshal(r)
		b, _ := json.Marshal(again)
		if err != nil || string(a) != string(b) || len(r.Rows)+len(r.Accuracy) == 0 {
			t.Errorf("%s: %d rows, another time others: %v", l.ID, len(r.Rows), err)
		}
		for _, key := range r.CalibratedOn {
			if targets()[key].Role != "calibrate" {
				t.Errorf("%s: calibrated on %s", l.ID, key)
			}
		}
		for _, row := range r.Rows {
			checkRow(t, r, row)
		}
	}
}

func checkRow(t *testing.T, r *Result, row Row) {
	t.Helper()
	if row.Kind == Calibrated && targets()[row.Target].Role != "calibrate" || (row.Paper == nil) != (row.Target == "") || row.Source != "modelled" || row.Unit == "" {
		t.Errorf("%s: %+v", r.ID, row)
	}
	if row.Kind == Sensitivity {
		if *row.Low > row.Value || *row.High < row.Value || *row.High > 2**row.Low || len(row.Varied) == 0 {
			t.Errorf("%s: band %+v", r.ID, row)
		}
		for _, name := range row.Varied {
			if p := r.Parameters[name]; p.Source == "paper" || p.Low == nil {
				t.Errorf("%s: varies %s, %+v", r.ID, name, p)
			}
		}
	}
	if to := targets()[row.Target]; row.Target != "" && to.Role == "closed_form" && !closedHolds(to, row) {
		t.Errorf("%s: %s is %v, the paper prints %v", r.ID, row.Target, row.Value, to.Value)
	}
}

func closedHolds(to target, row Row) bool {
	if to.Relation == "~" {
		return math.Abs(row.Value/to.Value-1) <= 0.1
	}
	return to.holds(row)
}

// TestCalibration: what the hardware files say was fitted on a value gives that value again.
func TestCalibration(t *testing.T) {
	for _, id := range []string{"sliminfer-tabE", "sliminfer-tabF", "instinfer-fig12", "instinfer-fig14", "hillinfer-fig3a"} {
		r, err := Run(id, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, row := range r.Rows {
			if row.Kind != Calibrated {
				continue
			}
			n++
			if to := targets()[row.Target]; !to.holds(row) {
				t.Errorf("%s: %v, fitted on %v", row.Target, row.Value, to.Value)
			}
		}
		if n == 0 {
			t.Errorf("%s: nothing was fitted", id)
		}
	}
}

// TestArguments: unknown and bad settings are errors that name them; known ones change what they should.
func TestArguments(t *testing.T) {
	for _, bad := range [][]string{{"no-such-id"}, {"evicpress-fig2", "no_such_key=1"}, {"evicpress-fig2", "fast_bps=quick"}, {"evicpress-fig2", "fast_bps=-1"}, {"evicpress-fig2", "fast_bps=0"}, {"evicpress-fig2", "keep_both=2"},
		{"evicpress-fig2", "fast_bps"}, {"hillinfer-fig16b", "links=both"}, {"hillinfer-fig14", "model=x"}, {"hillinfer-fig14", "batch=1/x"}, {"sliminfer-tab2", "schedule=1/2"}, {"sliminfer-tab2", "pruning_layers=3/2/1"}} {
		_, err := Run(bad[0], bad[1:])
		if !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), strings.Split(bad[len(bad)-1], "=")[0]) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v", bad, err)
		}
	}
	r, err := Run("evicpress-fig2", []string{"fast_bps=40e9"})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Series == "joint" && row.Metric == "ttft_s" && math.Abs(row.Value-0.3) > 1e-12 {
			t.Errorf("joint at 40 GB/s: %v, want 0.3", row.Value)
		}
	}
}

// TestBetaMinimum: the split's minimum, and the policy's formula, lie where both paths take as long by the paper's equations,
// solved here. (TestBetaMinimumOfThePipeline sweeps the pipeline itself.)
func TestBetaMinimum(t *testing.T) {
	const alpha, fc, fs, bc, bs = 0.2, 12e9, 6e9, 25e9, 3.2e9
	for links, want := range map[string]float64{
		"direct":        (1/fs + alpha/bs) / (1/fc + alpha/bc),
		"store_forward": (1/fs + alpha/bs + alpha/bc) / (1/fc + alpha/bc), // what is cold crosses both links
	} {
		r, err := Run("hillinfer-fig16b", []string{"links=" + links, "gpu_flops=1e21", "gpu_mem_bps=1e21", "f_c=12e9", "f_s=6e9", "B_c=25e9", "B_s=3.2e9", "alpha=0.2"})
		if err != nil {
			t.Fatal(err)
		}
		best, at, formula := math.Inf(1), 0.0, 0.0
		for _, row := range r.Rows {
			if row.Metric == "beta_formula" {
				formula = row.Value
			}
			if row.Metric == "step_s" && row.Value < best {
				best, at = row.Value, row.X["beta"].(float64)
			}
		}
		if math.Abs(at/want-1) > 0.07 || math.Abs(formula/want-1) > 1e-9 { // the sweep's ratios are 14 % apart
			t.Errorf("%s: minimum at %v, formula %v, want %v", links, at, formula, want)
		}
	}
}

// TestPage: the page loads nothing, has a chart an experiment, and the JSON has simulate's rows, measured ones behind them.
func TestPage(t *testing.T) {
	r, err := Reproduce([]string{"evicpress-fig2", "sliminfer-tab2", "sliminfer-tabF", "sliminfer-fig5"})
	if err != nil {
		t.Fatal(err)
	}
	var html strings.Builder
	if err := r.WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	text := html.String()
	if strings.Count(text, "<h3>") != 4 || strings.Count(text, "<svg") < 4 || !strings.Contains(text, "viewport") || strings.Contains(text, "//") || strings.Contains(text, "<script") || strings.Contains(text, "NaN") {
		t.Errorf("page of %d bytes", len(text))
	}
	for _, want := range []string{"measured: SmolLM2-135M", "Parameters of SlimInfer", "sliminfer-tabF/slim-ttft-32k", "chosen after misses had been seen"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	n := 0
	for _, row := range r.Experiments[3].Rows {
		if row.Source == Measured {
			n++
		}
	}
	if n != 4 {
		t.Errorf("%d measured rows, want 4", n)
	}
}

// TestMeasuredRows: each is on the page that it names in the words that it quotes, which have its value, under an ID that there is.
func TestMeasuredRows(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range measuredRows() {
		_, name, ok := strings.Cut(strings.TrimSuffix(m.Reason, ")"), "(docs/")
		text, err := os.ReadFile("../docs/" + name)
		if !ok || err != nil || find(m.ID) == nil || m.Source != Measured || strings.Count(oneLine(string(text)), m.Quote) != 1 {
			t.Errorf("%s %s: %q is %d times on %q, want once: %v", m.ID, m.Series, m.Quote, strings.Count(oneLine(string(text)), m.Quote), name, err)
		}
		values := strings.FieldsFunc(m.Quote, func(r rune) bool { return !strings.ContainsRune("0123456789.,", r) })
		if !slices.ContainsFunc(values, func(v string) bool {
			f, err := strconv.ParseFloat(strings.Trim(v, ",."), 64)
			return err == nil && f == m.Value
		}) {
			t.Errorf("%s %s: %v is not in %q", m.ID, m.Series, m.Value, m.Quote)
		}
		if key := fmt.Sprint(m.ID, m.Series, m.X, m.Metric); seen[key] {
			t.Errorf("%s is there twice", key)
		} else {
			seen[key] = true
		}
	}
}

// oneLine is a text whose lines may be broken anywhere.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
