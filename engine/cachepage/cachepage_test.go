package cachepage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/engine"
	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/kernels/quant"
	"terrace/model"
	"terrace/weights"
	"terrace/weights/convert"
)

func TestMain(m *testing.M) { os.Exit(fakes.Main(m)) }

func open(t *testing.T, o engine.Options) *engine.Engine {
	t.Helper()
	file, err := weights.Open(fakes.Small(t))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	o.Threads = 1
	e, err := engine.Open(m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// drawn reads the data of a page.
func drawn(t *testing.T, r *Recorder) (p picture, page string) {
	t.Helper()
	var out strings.Builder
	if err := r.Write(&out, "a<b>", "</script>", 600); err != nil {
		t.Fatal(err)
	}
	page = out.String()
	_, data, _ := strings.Cut(page, "const data = ")
	data, _, _ = strings.Cut(data, ";\n")
	if err := json.Unmarshal([]byte(data), &p); err != nil {
		t.Fatalf("%v in %.80s", err, data)
	}
	return p, page
}

// TestPlaces: cells say what the session holds, and where, in each layer.
func TestPlaces(t *testing.T) {
	tiers := func() []tier.Tier {
		return []tier.Tier{{Kind: tier.Host, CapacityBytes: 560 << 10}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 8 << 20}}
	}
	if a, b := shade(1, 1000), shade(999, 1000); a != 'b' || b != 'a'+shades-1 {
		t.Errorf("one of a thousand is %c, all but one %c", a, b)
	}
	for name, o := range map[string]engine.Options{
		"memory": {Policy: "snapkv:budget=100,window_size=16"},
		"tokens": {Policy: "quest:budget=64", Tiers: tiers()},
		"layers": {Tiers: tiers()},
	} {
		e := open(t, o)
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), fakes.IDs(600, 1), engine.PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		r, start := New(e, 1000), e.TierUse()
		r.Note(s)
		for i := range 150 {
			if err := s.Decode(i % 200); err != nil {
				t.Fatal(err)
			}
			r.Note(s)
		}
		p, page := drawn(t, r)
		if strings.Contains(page, "http") || strings.Contains(page, "</script></p>") || !strings.Contains(page, "a&lt;b&gt;") {
			t.Error(name, "the page loads something, or a name is not escaped")
		}
		if len(p.Steps) != 151 || len(p.Frames) > framesMax || len(p.Frames) < framesMax/2 || p.Frames[1].Step-p.Frames[0].Step != r.stride {
			t.Fatalf("%s: %d steps, %d frames, stride %d", name, len(p.Steps), len(p.Frames), r.stride)
		}
		r.frames, r.stride = nil, 1
		r.Note(s)
		below, inMemory := 0, int64(0)
		for i, row := range r.frames[0].Rows {
			if len(row) != 2*250 { // 750 tokens, 3 a cell
				t.Fatalf("%s: a row of %d letters", name, len(row))
			}
			memory, lower, all := make([]int, 250), make([]int, 250), 3*e.Cache()[p.Layers[i]].KV.Heads
			for g := range e.Cache()[p.Layers[i]].KV.Heads {
				for j, pos := range s.Positions(p.Layers[i], g) {
					if s.InMemory(p.Layers[i], g, j) {
						memory[pos/3]++
						inMemory++
					} else {
						lower[pos/3]++
						below++
					}
				}
			}
			for c := range memory {
				for k, n := range []int{memory[c], lower[c]} {
					if got := int(row[2*c+k] - 'a'); (got == 0) != (n == 0) || (got == shades) != (n == all) {
						t.Fatalf("%s: layer %d, cell %d: shade %d for %d of %d", name, p.Layers[i], c, got, n, all)
					}
				}
			}
		}
		if kv := e.Cache()[0].KV; name == "layers" && inMemory*int64(2*(kv.KeyDim+kv.ValueDim)) > e.KV().InUseBytes {
			t.Errorf("%d tokens of a KV head are said to be in memory", inMemory)
		}
		moved := int64(0)
		for _, st := range r.steps {
			moved += st.Moved["ssd>host"]
		}
		if tiered := name != "memory"; (below > 0) != tiered || (p.Lower == "ssd") != tiered || (moved > 0) != tiered || moved != r.before.MovedBytes["ssd>host"]-start.MovedBytes["ssd>host"] {
			t.Errorf("%s: %d tokens below memory, lower tier %q, %d bytes read, the engine says %v", name, below, p.Lower, moved, e.TierUse().MovedBytes)
		}
		if held := p.Steps[150].Held; name == "memory" && held != 250 {
			t.Errorf("%g tokens held, want 100 and 150", held)
		}
	}
}

// TestExperts: a row a layer says of each expert where it is, and which the step chose; a text whose weights are all in memory has none.
func TestExperts(t *testing.T) {
	spec := convert.Spec{Arch: "gpt-oss", Layers: 2, Hidden: 64, HeadDim: 32, Vocab: 300, Context: 400, Seed: 3, SpecExperts: convert.SpecExperts{Experts: 8, ExpertsUsed: 2}}
	spec.SetDefaults()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := convert.Synthesize(t.Context(), path, spec, convert.Options{Type: quant.Q8_0}); err != nil {
		t.Fatal(err)
	}
	for _, streamed := range []bool{false, true} {
		file, err := weights.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		m, err := model.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if streamed {
			plan, err := m.StreamPlan()
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Stream(model.StreamOptions{BudgetBytes: plan.LeastBytes() + plan.TotalBytes()/3}); err != nil {
				t.Fatal(err)
			}
		}
		e, err := engine.Open(m, engine.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		s, err := e.NewSession(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r := New(e, 100)
		if err := s.Prefill(t.Context(), []int{5, 6, 7}, engine.PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if err := s.Decode(9); err != nil {
				t.Fatal(err)
			}
			r.Note(s)
		}
		p, _ := drawn(t, r)
		for _, f := range p.Frames {
			if !streamed {
				if len(f.Experts) > 0 {
					t.Errorf("experts of weights in memory: %v", f.Experts)
				}
				continue
			}
			for layer := range 2 {
				row := f.Experts[layer]
				if n := strings.Count(row, "d"); len(row) != 8 || n > 2 || layer == 1 && n != 2 || !strings.Contains(row, "a") {
					t.Errorf("step %d, layer %d: %q, want two chosen of eight, and some on the disk", f.Step, layer, row)
				}
			}
		}
	}
}
