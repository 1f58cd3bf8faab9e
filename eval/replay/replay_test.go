package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/engine/shelf"
	"terrace/eval"
	"terrace/internal/golden"
	"terrace/internal/vfs"
	"terrace/kvmanager/contexts"
	"terrace/model"
	"terrace/model/bert"
	"terrace/policy"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/vocab"
)

// bench is a Bench on the shared tiny llama.
func bench(t *testing.T) *Bench {
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
	e, err := engine.Open(m, engine.Options{Threads: 1, Context: 512})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); file.Close() })
	return &Bench{Reader: shelf.Reader{Engine: e, Tokenizer: tok, Quality: TokenF1{}, MaxTokens: 6}}
}

// data is some contexts and a trace in which each is asked about several times.
func data(n, requests int) (all []Context, trace []Arrival) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		var text strings.Builder
		for range 60 + 20*i {
			fmt.Fprintf(&text, "%c%c ", 'a'+r.IntN(26), 'a'+r.IntN(26))
		}
		all = append(all, Context{ID: fmt.Sprint("c", i), Text: text.String(), Questions: []Question{{Question: " what? "}, {Question: " who? "}}})
	}
	for i := range requests {
		trace = append(trace, Arrival{AtS: float64(i) / 1000, Context: all[r.IntN(n)].ID, Question: fmt.Sprintf(" q%d: ", i%5)})
	}
	return all, trace
}

// replayed runs one placement on a host of that many bytes and an ssd with room for all.
func replayed(t *testing.T, b *Bench, placement string, all []Context, trace []Arrival, whole References, profile *Profile, host int64, speed float64) ([]eval.Outcome, *eval.StoreUse) {
	t.Helper()
	store, err := contexts.Open(t.Context(), []contexts.Spec{{Kind: "host", CapacityBytes: host}, {Kind: "ssd", Place: "d", CapacityBytes: 256 << 20}},
		contexts.Options{FS: vfs.NewMem(1 << 30), Rule: contexts.Rule{Wait: true}, Write: contexts.WritePlaced})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if b.Cache, err = prefixcache.Use(b.Engine, store, "tiny"); err != nil {
		t.Fatal(err)
	}
	var out []eval.Outcome
	use, err := b.Replay(t.Context(), placement, trace, all, whole, profile, store, Options{Speed: speed}, func(o eval.Outcome) error {
		out = append(out, o)
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", placement, err)
	}
	if use.StorePeak["host"] > host || len(out) != len(trace) || use.Trouble != "" {
		t.Errorf("%s: %d outcomes of %d, %v of %d bytes on host, trouble %q", placement, len(out), len(trace), use.StorePeak, host, use.Trouble)
	}
	return out, use
}

// TestPlacements: text from the whole KV is that of computing it; each placement uses what it may use, and no tier is over its
// capacity.
func TestPlacements(t *testing.T) {
	b := bench(t)
	all, trace := data(5, 24)
	whole, err := b.References(t.Context(), trace, all)
	if err != nil {
		t.Fatal(err)
	}
	var used []*Context
	for i := range all {
		used = append(used, &all[i])
	}
	const evicpress = "evicpress:alpha=0.001,methods=keydiff/snapkv,keeps=0.5/0.25"
	ev, _ := policy.ParsePlacement(evicpress)
	profile, err := b.Profile(t.Context(), used, shelf.Configs(ev), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(profile.Contexts) != 5 || len(profile.Contexts[0].Quality) != 2 || profile.Metric != "token-f1" {
		t.Fatalf("profile %+v", profile)
	}
	seen := map[string]bool{}
	for _, a := range trace {
		seen[a.Context] = true
	}
	allowed := map[string]map[policy.Config]bool{
		"none": {}, "lru": {policy.Uncompressed: true}, "fixed:method=knorm,keep=0.5": {{Method: "knorm", Keep: 0.5}: true}, "impress:keep=0.5": {{Method: "snapkv", Keep: 0.5}: true},
		evicpress: {policy.Uncompressed: true, {Method: "keydiff", Keep: 0.5}: true, {Method: "keydiff", Keep: 0.25}: true, {Method: "snapkv", Keep: 0.5}: true, {Method: "snapkv", Keep: 0.25}: true},
	}
	for placement, configs := range allowed {
		out, use := replayed(t, b, placement, all, trace, whole, profile, 700<<10, 0)
		tiers, cached := map[string]int{}, 0
		for i, o := range out {
			if o.Error != "" || o.Score == nil {
				t.Fatalf("%s: request %d: %s", placement, i, o.Error)
			}
			if o.CachedTokens > 0 {
				cached++
				tiers[o.CacheTier]++
				if !configs[policy.Config{Method: o.Method, Keep: o.Keep}] {
					t.Errorf("%s: request %d used %s %g", placement, i, o.Method, o.Keep)
				}
			}
			if o.Method == "none" && (*o.Score != 1 || o.Pred != whole[asked{o.Context, o.Question}]) {
				t.Errorf("%s: request %d: %q, whole KV %q", placement, i, o.Pred, whole[asked{o.Context, o.Question}])
			}
		}
		if want := len(trace) - len(seen); placement != "none" && cached != want || placement == "none" && cached != 0 {
			t.Errorf("%s: %d requests found their context, want %d (%v)", placement, cached, want, use)
		}
		if placement == "lru" && len(tiers) != 2 {
			t.Errorf("lru used %v", tiers)
		}
	}
}

// TestReprofile: a context whose answers are worse than its profile says is profiled again on the questions that came, and the
// replay's own profile changes, not the one that was given.
func TestReprofile(t *testing.T) {
	b := bench(t)
	all, trace := data(3, 15)
	whole, err := b.References(t.Context(), trace, all)
	if err != nil {
		t.Fatal(err)
	}
	lies := &Profile{}
	for _, c := range all {
		lies.Contexts = append(lies.Contexts, ContextProfile{ID: c.ID, Quality: map[string]map[string]float64{"knorm": {"0.1": 1}}})
	}
	const never, often = "evicpress:alpha=0.0001,methods=knorm,keeps=0.1", "evicpress:alpha=0.0001,methods=knorm,keeps=0.1,reprofile=0.05"
	_, without := replayed(t, b, never, all, trace, whole, lies, 4<<20, 0)
	_, with := replayed(t, b, often, all, trace, whole, lies, 4<<20, 0)
	if without.Reprofiled != 0 || with.Reprofiled == 0 || with.ProfileS <= 0 {
		t.Errorf("without %+v, with %+v", without, with)
	}
	if lies.Contexts[0].Quality["knorm"]["0.1"] != 1 {
		t.Error("the profile that was given has changed")
	}
}

// TestOpenLoop: requests that come while another is served wait, and TTFT counts from their arrival.
func TestOpenLoop(t *testing.T) {
	b := bench(t)
	all, trace := data(2, 6)
	whole, err := b.References(t.Context(), trace, all)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := replayed(t, b, "lru", all, trace, whole, nil, 4<<20, 1e6) // all at once
	for i, o := range out[1:] {
		if o.QueueMS <= out[i].QueueMS || o.TTFT < o.QueueMS {
			t.Errorf("request %d waited %.2f ms of %.2f, the one before %.2f", i+1, o.QueueMS, o.TTFT, out[i].QueueMS)
		}
	}
}

// TestOwnQuestions: a context without questions is profiled on the model's own.
func TestOwnQuestions(t *testing.T) {
	b := bench(t)
	all, _ := data(1, 1)
	all[0].Questions = nil
	p, err := b.Profile(t.Context(), []*Context{&all[0]}, []policy.Config{{Method: "knorm", Keep: 0.5}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c := p.Of("c0"); !c.Own || c.Questions == 0 {
		t.Errorf("profile %+v", c)
	}
}

func TestQuality(t *testing.T) {
	file, err := weights.Open("../../model/bert/testdata/tiny")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	e, err := bert.Open(file, bert.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, q := range []shelf.Quality{shelf.Cosine{Encoder: e}, TokenF1{}} {
		s, err := q.Scores([]string{"hello world", "the fox", "", strings.Repeat("dog ", 300)}, []string{"hello world", "a quick answer", "", "dog"})
		if err != nil || s[0] != 1 || s[2] != 1 || s[1] >= 1 || s[3] >= 1 {
			t.Errorf("%s: %v %v", q.Name(), s, err)
		}
	}
}

func TestReading(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "f.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	all, err := ReadContexts(write(`{"id":"a","text":"x","task":"t","questions":["q1",{"question":"q2","answers":["y"]}]}` + "\n\n" + `{"id":"b","text":"y"}`))
	if err != nil || len(all) != 2 || all[0].Questions[0].Question != "q1" || all[0].Questions[1].Answers[0] != "y" {
		t.Fatalf("%+v %v", all, err)
	}
	for _, bad := range []string{"", "{", `{"id":"","text":"x"}`, `{"id":"a","text":""}`, `{"id":"a","text":"x"}` + "\n" + `{"id":"a","text":"x"}`, `{"id":1}`, `{"id":"a","text":"x","questions":[{"question":""}]}`} {
		if _, err := ReadContexts(write(bad)); !errors.Is(err, eval.ErrData) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", `{"at_s":0,"context":"z","question":"q"}`, `{"at_s":0,"context":"a","question":""}`, `{"at_s":-1,"context":"a","question":"q"}`,
		`{"at_s":2,"context":"a","question":"q"}` + "\n" + `{"at_s":1,"context":"a","question":"q"}`} {
		if _, err := ReadTrace(write(bad), 0, all); !errors.Is(err, eval.ErrData) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	trace, err := ReadTrace(write(`{"at_s":0,"context":"a","question":"q"}`+"\n"+`{"at_s":1,"context":"b","question":"q"}`), 1, all)
	if err != nil || len(trace) != 1 {
		t.Errorf("%v %v", trace, err)
	}
	raw, _ := json.Marshal(Profile{Metric: "m", Contexts: []ContextProfile{{ID: "a", Quality: map[string]map[string]float64{"knorm": {"0.5": 0.7}}}}})
	p, err := ReadProfile(write(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if q, ok := p.Of("a").Of(policy.Config{Method: "knorm", Keep: 0.5}); !ok || q != 0.7 || p.Of("b") != nil {
		t.Errorf("%v %v", q, ok)
	}
}
