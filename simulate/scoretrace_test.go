package simulate

import (
	"bufio"
	"bytes"
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
)

const fixture = "testdata/smollm2.scores"

func recordedScores(t *testing.T) *ScoreTrace {
	t.Helper()
	f, err := os.Open(fixture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := ReadScoreTrace(bufio.NewReader(f))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// heard is a trace of a synthetic one's scores.
func heard(t *testing.T, f ScoreFit, prompt, steps, layers int) *ScoreTrace {
	t.Helper()
	from, out := newSynthetic(f.params(), prompt), NewScoreTrace(prompt, steps, 0, layers)
	k, q := make([]float32, pipeDim), make([]float32, pipeDim)
	for layer := range layers {
		for step := range steps {
			from.query(q, 0, layer, prompt+step)
			row := make([]float32, prompt+step)
			for pos := range row {
				from.key(k, 0, layer, pos)
				for d := range q {
					row[pos] += q[d] * k[d]
				}
			}
			out.Hear(layer, row)
		}
	}
	return out
}

// TestScoreTraceIsReadAsWritten: every code comes back; what is cut, damaged, unfinished or too long is an error.
func TestScoreTraceIsReadAsWritten(t *testing.T) {
	trace := heard(t, BuiltInScores(), 70, 9, 3)
	trace.Model, trace.Text = "m", "random"
	var b bytes.Buffer
	if err := trace.Write(&b); err != nil {
		t.Fatal(err)
	}
	if in := bufio.NewReader(bytes.NewReader(b.Bytes())); !IsScoreTrace(in) {
		t.Error("not known as a score trace")
	}
	again, err := ReadScoreTrace(bufio.NewReader(bytes.NewReader(b.Bytes())))
	if err != nil || !reflect.DeepEqual(again.codes, trace.codes) || again.Text != "random" {
		t.Fatalf("%v: %+v", err, again)
	}
	for name, damaged := range map[string][]byte{"cut": b.Bytes()[:b.Len()-20], "no line": []byte("{"), "another format": bytes.Replace(b.Bytes(), []byte("scores-1"), []byte("scores-9"), 1),
		"fewer steps": bytes.Replace(b.Bytes(), []byte(`"steps":9`), []byte(`"steps":8`), 1), "layers": bytes.Replace(b.Bytes(), []byte("[0,1,2]"), []byte("[0,2,1]"), 1)} {
		if _, err := ReadScoreTrace(bufio.NewReader(bytes.NewReader(damaged))); !errors.Is(err, ErrScores) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := NewScoreTrace(70, 9, 0, 3).Write(&b); !errors.Is(err, ErrScores) {
		t.Errorf("an empty trace: %v", err)
	}
	trace.Hear(0, make([]float32, 79))
	if err := trace.Check(); !errors.Is(err, ErrScores) {
		t.Errorf("a row too many: %v", err)
	}
}

// TestNewScoreTraceSpreadsLayers: those recorded are evenly spaced.
func TestNewScoreTraceSpreadsLayers(t *testing.T) {
	if got := NewScoreTrace(1, 1, 5, 30).Layers; !reflect.DeepEqual(got, []int{3, 9, 15, 21, 27}) {
		t.Errorf("%v", got)
	}
}

// TestFitFindsWhatATraceHas: a fit to a synthetic trace gives the parameters it was made with.
func TestFitFindsWhatATraceHas(t *testing.T) {
	want := ScoreFit{Persistence: 0.6, Level: 1.2, LevelShared: 0.4, RestShared: 0.3, Recency: 4, RecencyTokens: 80}
	got, err := FitScores(heard(t, want, 600, 48, 6))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name                  string
		got, want, difference float64
	}{{"persistence", got.Persistence, want.Persistence, 0.1}, {"level", got.Level, want.Level, 0.2}, {"level_shared", got.LevelShared, want.LevelShared, 0.1},
		{"rest_shared", got.RestShared, want.RestShared, 0.1}, {"recency", got.Recency, want.Recency, 0.8}, {"recency_tokens", got.RecencyTokens, want.RecencyTokens, 16}} {
		if math.Abs(c.got-c.want) > c.difference {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if _, err := FitScores(heard(t, want, 70, 4, 2)); !errors.Is(err, ErrScores) {
		t.Errorf("4 steps: %v", err)
	}
}

// TestReplayRanksAsRecorded: keys and queries of a recorded trace have its codes as products, in whole numbers of 8 bits.
func TestReplayRanksAsRecorded(t *testing.T) {
	trace := recordedScores(t)
	r, err := newReplay(trace, 1000, pipeLayers, pipeSteps)
	if err != nil {
		t.Fatal(err)
	}
	k, q := make([]float32, pipeDim), make([]float32, pipeDim)
	for _, step := range []int{0, 20, pipeSteps - 1} {
		r.query(q, 0, 2, 1000+step)
		for pos := range 1000 + step {
			r.key(k, 1, 2, pos)
			product := 0
			for d := range q {
				if k[d] != float32(int8(k[d])) || q[d] != float32(int8(q[d])) {
					t.Fatalf("step %d, token %d: %v times %v", step, pos, k[d], q[d])
				}
				product += int(k[d]) * int(q[d])
			}
			if want := int(trace.codes[2][step][pos+24]); product != want {
				t.Fatalf("step %d, token %d: %d, recorded %d", step, pos, product, want)
			}
		}
	}
	for name, err := range map[string]error{"tokens": second3(newReplay(trace, 2000, 5, 48)), "layers": second3(newReplay(trace, 1000, 6, 48)), "steps": second3(newReplay(trace, 1000, 5, 49))} {
		if !errors.Is(err, ErrScores) {
			t.Errorf("more %s than recorded: %v", name, err)
		}
	}
}

func second3(_ *replay, err error) error { return err }

// TestFittedTracesFindAsMuchHot: on the built-in synthetic trace as much of what is read is hot as on the recorded one, and picks stay
// as long.
func TestFittedTracesFindAsMuchHot(t *testing.T) {
	trace, own := recordedScores(t), BuiltInScores()
	for _, c := range []HitRate{{Pools: "paper", Alpha: 0.2, Share: 0.25}, {Pools: "paper", Alpha: 0.2, Share: 0.8}, {Pools: "layer", Alpha: 0.1, Share: 0.25}} {
		recorded, err := hitRate(trace, nil, c)
		if err != nil {
			t.Fatal(err)
		}
		synthetic, err := hitRate(trace, &own, c)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(recorded-synthetic) > 0.05 || recorded < c.Share {
			t.Errorf("%+v: recorded %.3f, synthetic %.3f", c, recorded, synthetic)
		}
	}
	list, err := Turnovers(trace, own)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if math.Abs(c.Recorded-c.Synthetic[0]) > 0.1 {
			t.Errorf("%+v", c)
		}
	}
}

// TestRecordedTraceDrivesAnExperiment: parameter trace names a recorded file; one that is none is an argument's error.
func TestRecordedTraceDrivesAnExperiment(t *testing.T) {
	at := func(sets ...string) float64 {
		r, err := Run("hillinfer-built", append([]string{"model=OPT-6.7B", "context=1984", "batch=10"}, sets...))
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows {
			if row.Series == "as built" && row.Metric == "drive_bytes" {
				return row.Value
			}
		}
		return 0
	}
	synthetic, recorded := at(), at("trace="+fixture)
	if recorded == synthetic || recorded < synthetic/2 || recorded > 2*synthetic {
		t.Errorf("from the drive: %v B on the synthetic trace, %v on the recorded one", synthetic, recorded)
	}
	for _, bad := range []string{"trace=none", "trace=scores.go"} {
		if _, err := Run("hillinfer-fig9", []string{bad}); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestFittedStep: where more of what is read is hot than the formula takes for given, the step is shorter, by at most what it gains by
// scoring and delivering at the same time.
func TestFittedStep(t *testing.T) {
	h := builtHill(t, "OPT-6.7B", 10, 1984)
	plain := builtRun(t, h, "query=guess")
	f := BuiltInScores()
	for name, v := range f.params() {
		h.p = h.p.with(name, v)
	}
	fitted := builtRun(t, h, "query=guess")
	if apart := h.kv() * h.p["alpha"] / h.p["B_c"]; fitted.crossed >= plain.crossed || fitted.step >= plain.step || fitted.step < h.hillinfer(parts{})-apart {
		t.Errorf("fitted %+v, plain %+v, formula %v", fitted, plain, h.hillinfer(parts{}))
	}
}
