package placements

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"terrace/engine"
	"terrace/engine/shelf"
	"terrace/eval"
	"terrace/eval/replay"
	evalrun "terrace/eval/run"
	"terrace/internal/golden"
	"terrace/kvmanager/contexts"
	"terrace/model"
	"terrace/policy"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/vocab"
)

// watched is a run that is told to nobody but the test.
type watched struct {
	*Run
	notices []string
	counted map[string]int
}

// evaluation is a run on the shared tiny llama: six requests for two contexts, under the placements named.
func evaluation(t *testing.T, dir string, o engine.Options, named ...string) *watched {
	t.Helper()
	file, err := weights.Open(golden.Shared(t, "data", "golden", "tiny_gguf", "tiny-Q8_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	v, err := vocab.FromModel(file.Meta(), "")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	o.Threads, o.Context = 1, 512
	e, err := engine.Open(m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); file.Close() })
	folder, err := evalrun.Open(dir, evalrun.Options{Version: "v", Suite: "contexts", Policies: named}, evalrun.Machine{CPU: "test", Cores: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.Close() })
	w := &watched{counted: map[string]int{}}
	w.Run = &Run{Bench: &replay.Bench{Reader: shelf.Reader{Engine: e, Tokenizer: tok, Quality: replay.TokenF1{}, MaxTokens: 3}}, Model: "tiny", Folder: folder,
		Stores: []contexts.Spec{{Kind: "host", CapacityBytes: 4 << 20}}}
	w.Progress = Progress{Notice: func(line string) { w.notices = append(w.notices, line) }, Count: func(label string, done, total int) { w.counted[label] = done }, Done: func() {}}
	for i, id := range []string{"a", "b", "a", "b", "b", "a"} {
		w.Trace = append(w.Trace, replay.Arrival{AtS: float64(i) * 1440, Context: id, Question: " so?"})
	}
	for _, id := range []string{"a", "b"} {
		w.Contexts = append(w.Contexts, replay.Context{ID: id, Text: id + strings.Repeat(" ab c", 24), Questions: []replay.Question{{Question: "x"}}})
	}
	for _, text := range named {
		p, err := policy.ParsePlacement(text)
		if err != nil {
			t.Fatal(err)
		}
		w.Placements = append(w.Placements, Placement{text, p})
	}
	return w
}

// close ends a run, so that its folder may be opened again.
func (w *watched) close() { w.Folder.Close() }

// TestRun: every placement is replayed once on stores of its own; a second run of the folder finds everything done.
func TestRun(t *testing.T) {
	dir, ssd := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "kv")
	const evicpress = "evicpress:alpha=0.1,methods=knorm,keeps=0.5"
	named := []string{"none", "lru", evicpress}
	for again := range 2 {
		w := evaluation(t, dir, engine.Options{}, named...)
		w.Stores = append(w.Stores, contexts.Spec{Kind: "ssd", Place: ssd, CapacityBytes: 64 << 20})
		res, err := w.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !res.Complete || res.QualityMetric != "token-f1" || len(res.Policies) != 3 || len(w.Folder.Outcomes()) != 18 {
			t.Fatalf("%+v, %d outcomes", res, len(w.Folder.Outcomes()))
		}
		if lru := res.Policies[1]; lru.Hits["none"] != 1.0/3 || *lru.Mean != 100 || lru.Configs["none 1"] != 1 {
			t.Errorf("lru: %+v", lru.ReplayResult)
		}
		if none := res.Policies[0]; none.Hits["none"] != 1 {
			t.Errorf("none: %+v", none.ReplayResult)
		}
		want := map[string]int{"none": 6, "lru": 6, evicpress: 6, "profiling": 2}
		if again > 0 {
			want = map[string]int{}
		}
		if fmt.Sprint(w.counted) != fmt.Sprint(want) || len(w.notices) != 2*(1-again) {
			t.Errorf("run %d counted %v, want %v; said %q", again, w.counted, want, w.notices)
		}
		if left, err := os.ReadDir(ssd); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
		w.close()
	}
}

// TestStopped: a run that was stopped in a placement goes on with that one, and keeps each request once.
func TestStopped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w := evaluation(t, dir, engine.Options{}, "none", "lru")
	ctx, stop := context.WithCancel(t.Context())
	count := w.Progress.Count
	w.Progress.Count = func(label string, done, total int) {
		if count(label, done, total); label == "lru" && done == 3 {
			stop()
		}
	}
	if _, err := w.Do(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("stopped: %v", err)
	}
	w.close()
	w = evaluation(t, dir, engine.Options{}, "none", "lru")
	res, err := w.Do(t.Context())
	if err != nil || !res.Complete || w.counted["none"] != 0 || w.counted["lru"] != 6 || len(w.notices) != 0 {
		t.Fatalf("%v: counted %v, said %q", err, w.counted, w.notices)
	}
	var keys []eval.Key
	for _, o := range w.Folder.Outcomes() {
		if slices.Contains(keys, o.Key()) {
			t.Errorf("%v twice", o.Key())
		}
		keys = append(keys, o.Key())
	}
	if len(keys) != 12 {
		t.Errorf("%d outcomes", len(keys))
	}
}

// TestSustained: rates are searched where an objective is given, and those that the folder has are not replayed again.
func TestSustained(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	for again := range 2 {
		w := evaluation(t, dir, engine.Options{}, "lru")
		w.SkipIdle, w.Objective = true, replay.Objective{Quality: 99, TTFT: time.Hour}
		res, err := w.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s := res.Policies[0].Sustained; s == nil || s.QPS <= 0 || s.Floor != 99 {
			t.Errorf("%+v", s)
		}
		if delete(w.counted, "lru"); (len(w.counted) > 0) != (again == 0) {
			t.Errorf("run %d counted %v", again, w.counted)
		}
		w.close()
	}
}

// TestUnfit: an engine whose contexts cannot be kept is refused, but for a placement that keeps none.
func TestUnfit(t *testing.T) {
	w := evaluation(t, filepath.Join(t.TempDir(), "run"), engine.Options{WindowOnly: true}, "none", "lru")
	if _, err := w.Do(t.Context()); !errors.Is(err, ErrUnfit) || w.counted["none"] != 6 || w.counted["lru"] != 0 {
		t.Errorf("%v: counted %v", err, w.counted)
	}
}
