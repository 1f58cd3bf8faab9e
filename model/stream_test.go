package model_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"terrace/internal/kernels"
	"terrace/internal/vfs"
	"terrace/model"
	"terrace/weights"
	"terrace/weights/hf/hftest"
	"terrace/weights/stream"
)

// streamed is a runner of a model whose weights take share of what lies between the least and all.
func streamed(t *testing.T, path string, share float64) *runner {
	t.Helper()
	return streamedOn(t, path, share, nil)
}

// streamedOn is streamed on a file system; nil = the system's.
func streamedOn(t *testing.T, path string, share float64, fs vfs.FS) *runner {
	t.Helper()
	return streamedUnder(t, path, share, fs, stream.Bias{})
}

// streamedUnder is streamedOn with a text that is traded for reads.
func streamedUnder(t *testing.T, path string, share float64, fs vfs.FS, bias stream.Bias) *runner {
	t.Helper()
	file, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := m.StreamPlan()
	if err != nil {
		t.Fatal(err)
	}
	least, all := plan.LeastBytes(), plan.LeastBytes()+plan.TotalBytes()
	if err := m.Stream(model.StreamOptions{BudgetBytes: least + int64(share*float64(all-least)), FS: fs, Bias: bias}); err != nil {
		t.Fatal(err)
	}
	b, err := model.OpenBackend("native", m, model.BackendOptions{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	r := &runner{t: t, m: m, b: b, phase: kernels.Exact}
	r.pages(16)
	return r
}

// TestStreamedFamilies: each family computes bit for bit what it computes with all weights in memory, as a folder and as a GGUF file,
// as a prompt and step by step, in all arithmetic classes, whatever fits.
func TestStreamedFamilies(t *testing.T) {
	root, names := families(t)
	for _, name := range names {
		for _, path := range []string{filepath.Join(root, name), filepath.Join(root, name, "model.gguf")} {
			if _, err := os.Stat(path); err != nil {
				continue // no GGUF form
			}
			t.Run(name+"/"+filepath.Base(path), func(t *testing.T) { sameStreamed(t, path) })
		}
	}
}

// sameStreamed compares logits of a prompt and of single steps behind it.
func sameStreamed(t *testing.T, path string) {
	t.Helper()
	if indexed(newRunner(t, path).m) {
		return
	}
	ids := make([]int, 40)
	for i := range ids {
		ids[i] = 3 + 5*i%29
	}
	run := func(r *runner, phase kernels.Phase) (out [][]float32) {
		r.phase = phase
		for _, rows := range r.pass(ids[:37], len(ids)) {
			out = append(out, slices.Clone(rows))
		}
		for i := 37; i < len(ids); i++ {
			if phase == kernels.Prefill {
				r.phase = kernels.Decode
			}
			out = append(out, slices.Clone(r.pass(ids[i:i+1], len(ids))[0]))
		}
		return out
	}
	for _, phase := range []kernels.Phase{kernels.Exact, kernels.Prefill} {
		want := run(newRunner(t, path), phase)
		for _, share := range map[kernels.Phase][]float64{kernels.Exact: {0}, kernels.Prefill: {0, 0.3, 1}}[phase] {
			r := streamed(t, path, share)
			got := run(r, phase)
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Fatalf("phase %d, share %g: logits of row %d differ", phase, share, i)
				}
			}
			u := r.m.Streamed().Accounts()
			if u.ReadBytes == 0 || u.PeakBytes > u.BudgetBytes {
				t.Errorf("share %g: accounts %+v", share, u)
			}
		}
	}
}

// TestStreamedModels is TestStreamedFamilies for models that need no golden files, and says what does not fit.
func TestStreamedModels(t *testing.T) {
	moe, shapes := mixtral()
	for name, path := range map[string]string{
		"llama":          newSource(t, hftest.Llama(), hftest.Decoder(hftest.Llama())).write(t),
		"llama folder":   hftest.Folder(t, hftest.Llama(), hftest.Decoder(hftest.Llama())),
		"mixtral":        newSource(t, moe, shapes).write(t),
		"mixtral folder": hftest.Folder(t, moe, shapes),
	} {
		t.Run(name, func(t *testing.T) {
			sameStreamed(t, path)
			file, err := weights.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			m, err := model.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Stream(model.StreamOptions{BudgetBytes: 1000}); !errors.Is(err, stream.ErrBudget) {
				t.Errorf("1000 bytes: %v", err)
			}
		})
	}
}

// mixtral is a model of eight experts a layer, of which a token uses two.
func mixtral() (hftest.Config, hftest.Shapes) {
	c := hftest.Llama().With(hftest.Config{"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2})
	shapes := hftest.Decoder(c)
	for l := range 2 {
		p := fmt.Sprintf("model.layers.%d.block_sparse_moe.", l)
		shapes[p+"gate.weight"] = []int{8, 16}
		for name, shape := range map[string][]int{"w1": {24, 16}, "w2": {16, 24}, "w3": {24, 16}} {
			shapes.EachLayer(p+"experts.%d.", 8, name+".weight", shape...)
		}
	}
	return c, shapes
}

// onceEach is files each of whose reads fails the first time.
type onceEach struct {
	vfs.OS
	mu   sync.Mutex
	seen map[int64]bool
	hits int
}

func (f *onceEach) OpenFile(name string, o vfs.OpenOptions) (vfs.File, error) {
	file, err := f.OS.OpenFile(name, o)
	return onceFile{file, f}, err
}

type onceFile struct {
	vfs.File
	f *onceEach
}

func (o onceFile) ReadVecAt(bufs [][]byte, off int64) (int, error) {
	o.f.mu.Lock()
	first := !o.f.seen[off]
	o.f.seen[off] = true
	if first {
		o.f.hits++
	}
	o.f.mu.Unlock()
	if first {
		return 0, syscall.EIO
	}
	return o.File.ReadVecAt(bufs, off)
}

// TestStreamedFaults: a disk whose reads fail once changes no logit.
func TestStreamedFaults(t *testing.T) {
	c, shapes := mixtral()
	path := newSource(t, c, shapes).write(t)
	ids := []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	want := newRunner(t, path).pass(ids, len(ids))
	fs := &onceEach{seen: map[int64]bool{}}
	r := streamedOn(t, path, 0, fs)
	got := r.pass(ids, len(ids))
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Fatalf("logits of row %d differ", i)
		}
	}
	if fs.hits < 10 {
		t.Errorf("only %d reads failed", fs.hits)
	}
}

var soakTokens = flag.Int("stream-soak", 600, "tokens of TestStreamedSoak")

// TestStreamedSoak reads texts of random lengths, prompts and steps, with weights that fit in part from a disk whose reads fail or end short
// at random: each logit is that of a model in memory, and budgets hold.
func TestStreamedSoak(t *testing.T) {
	moe, shapes := mixtral()
	dense := hftest.Llama().With(hftest.Config{"num_hidden_layers": 6})
	for name, path := range map[string]string{
		"llama":   newSource(t, dense, hftest.Decoder(dense)).write(t),
		"mixtral": newSource(t, moe, shapes).write(t),
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(5, 5))
			chance := min(0.0015, 0.9/float64(*soakTokens)) // a read that fails is begun once more: none may fail twice
			faults := &vfs.Faults{Seed: 7, Chance: map[vfs.OpKind]float64{vfs.OpRead: chance}, Kinds: []vfs.FaultKind{vfs.EIO, vfs.Short}, After: 60}
			whole, some := newRunner(t, path), streamedOn(t, path, 0.2, &vfs.Faulty{FS: vfs.OS{}, Faults: faults})
			for done := 0; done < *soakTokens; {
				ids := make([]int, 2+random.IntN(60))
				for i := range ids {
					ids[i] = random.IntN(30)
				}
				prompt := 1 + random.IntN(len(ids)-1)
				for _, r := range []*runner{whole, some} {
					r.tokens = 0
					r.pages(16)
				}
				for from, to := 0, prompt; from < len(ids); from, to = to, to+1 {
					for _, r := range []*runner{whole, some} {
						if r.phase = kernels.Decode; from == 0 {
							r.phase = kernels.Prefill
						}
					}
					want, got := whole.pass(ids[from:to], len(ids)), some.pass(ids[from:to], len(ids))
					for i := range want {
						if !slices.Equal(got[i], want[i]) {
							t.Fatalf("text behind %d tokens: logits of token %d differ", done, from+i)
						}
					}
				}
				done += len(ids)
			}
			u := some.m.Streamed().Accounts()
			ops, struck := faults.Ops()
			if u.PeakBytes > u.BudgetBytes || u.Hits == 0 || u.Hits == u.Used || struck < 2 {
				t.Errorf("%d of %d reads went wrong; accounts %+v", struck, ops, u)
			}
		})
	}
}

// TestStreamedPredictions: steps find experts that the router of the next layer was asked about before it.
func TestStreamedPredictions(t *testing.T) {
	c, shapes := mixtral()
	r := streamed(t, newSource(t, c, shapes).write(t), 0.4)
	r.phase = kernels.Decode
	for i := range 30 {
		r.pass([]int{i}, 30)
	}
	u := r.m.Streamed().Accounts()
	if u.Used != 2*2*30 || u.Asked == 0 || u.Predicted == 0 || u.Predicted > u.Used || u.Wasted > u.Asked || u.Hits == 0 {
		t.Errorf("accounts %+v", u)
	}
}

// TestExpertBias: a margin has fewer experts read and others used, and the same text on every disk; fewer experts are used where that is
// asked for; what means nothing to a model is refused and changes nothing.
func TestExpertBias(t *testing.T) {
	c, shapes := mixtral()
	path := newSource(t, c, shapes).write(t)
	var foreseen, missing int // experts that predictions name, and those of them that are not in memory
	run := func(fs vfs.FS, bias stream.Bias) (out [][]float32, u stream.Use) {
		r := streamedUnder(t, path, 0.2, fs, bias)
		r.phase = kernels.Decode
		memory := stream.NewChooser(r.m.Streamed())
		foreseen, missing = 0, 0
		r.m.Routed = func(layer int, rows [][]int, predicted bool) {
			for e, there := range memory.Preferred(layer) {
				if predicted && len(rows[e]) > 0 {
					if foreseen++; !there {
						missing++
					}
				}
			}
		}
		for i := range 60 {
			out = append(out, slices.Clone(r.pass([]int{i % 30}, 60)[0]))
		}
		return out, r.m.Streamed().Accounts()
	}
	equal := func(a, b [][]float32) bool { return slices.EqualFunc(a, b, slices.Equal[[]float32]) }
	plain, without := run(nil, stream.Bias{})
	missed := missing
	text, with := run(nil, stream.Bias{Margin: 0.6})
	if with.Bias.Moved == 0 || with.Bias.Choices != 60*2*2 || with.Bias.Dropped != 0 || without.Bias != (stream.BiasUse{}) {
		t.Errorf("accounts %+v, without a bias %+v", with.Bias, without.Bias)
	}
	if with.Used-with.Hits >= without.Used-without.Hits || equal(text, plain) {
		t.Errorf("%d of %d experts in memory with a margin, %d of %d without", with.Hits, with.Used, without.Hits, without.Used)
	}
	if foreseen != 60*2*2 || 10*missing >= 9*missed {
		t.Errorf("of %d experts that predictions name %d are not in memory with a margin, %d without", foreseen, missing, missed)
	}
	if again, _ := run(&onceEach{seen: map[int64]bool{}}, stream.Bias{Margin: 0.6}); !equal(again, text) {
		t.Error("a disk whose reads fail once changes the text")
	}
	if few, u := run(nil, stream.Bias{Experts: 1}); u.Used != 60*2 || u.Bias != (stream.BiasUse{Choices: 240, Dropped: 120}) || equal(few, plain) {
		t.Errorf("one expert a token: accounts %+v", u)
	}
	if slight, _ := run(nil, stream.Bias{Margin: 1e-9}); !equal(slight, plain) {
		t.Error("a margin that no expert lies within changes the text")
	}
	dense := newSource(t, hftest.Llama(), hftest.Decoder(hftest.Llama())).write(t)
	for _, bad := range []struct {
		path string
		bias stream.Bias
	}{{dense, stream.Bias{Margin: 0.1}}, {path, stream.Bias{Experts: 2}}, {path, stream.Bias{Experts: -1}}, {path, stream.Bias{Margin: 1}}} {
		file, err := weights.Open(bad.path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		m, err := model.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		used := m.TopK
		if err := m.Stream(model.StreamOptions{BudgetBytes: 1 << 30, Bias: bad.bias}); !errors.Is(err, stream.ErrBias) || m.TopK != used || m.Bias().On() || m.Streamed() != nil {
			t.Errorf("%+v: %v", bad.bias, err)
		}
	}
}
