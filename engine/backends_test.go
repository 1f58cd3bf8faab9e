package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/tensor"

	"terrace/internal/golden"
	"terrace/internal/kernels"
	"terrace/model"
	_ "terrace/model/gorgonia"
	"terrace/model/xla"
	"terrace/weights"
	"terrace/weights/hf"
	"terrace/weights/hf/hftest"
)

// parityBackends are the backends that must agree with the goldens in float32; a build tag adds those that need cgo. A case
// is left out only by what a backend declares: model.ErrUnsupported when it is opened.
var parityBackends = []string{"native", "gorgonia", "gomlx:go"}

// parityLimit bounds the largest difference of a logit, relative to the largest logit.
const parityLimit = 1e-3

// tinyCase is a model with the logits of all positions of its input.
type tinyCase struct {
	name, path string
	ids        []int
	logits     []float32 // [n, V]
	greedy     [][]int   // continuations that are right, nil = not known
}

func tinyHF(t *testing.T) (cases []tinyCase) {
	root := golden.Shared(t, "data", "golden", "tiny_hf")
	dirs, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		g := golden.Tensors(t, filepath.Join(root, d.Name(), "golden.safetensors"))
		cases = append(cases, tinyCase{d.Name(), filepath.Join(root, d.Name()), g["input_ids"].Ints(), g["logits"].Floats(),
			[][]int{g["greedy_ids"].Ints(), g["greedy_ids_cached"].Ints()}})
	}
	return cases
}

func tinyGGUF(t *testing.T) (cases []tinyCase) {
	root := golden.Shared(t, "data", "golden", "tiny_gguf")
	g := golden.Tensors(t, filepath.Join(root, "golden.safetensors"))
	files, err := filepath.Glob(filepath.Join(root, "tiny-*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "tiny-"), ".gguf")
		want, ok := g[name+"/logits_dequant_f32"]
		if !ok {
			t.Errorf("%s has no golden logits", f)
			continue
		}
		cases = append(cases, tinyCase{"gguf-" + name, f, g["input_ids"].Ints(), want.Floats(), nil})
	}
	return cases
}

// families are the models whose layers differ, as folders and as their twins in GGUF, of the architectures that are known here.
func families(t *testing.T) (cases []tinyCase) {
	root := golden.Shared(t, "data", "golden", "families")
	files, err := filepath.Glob(filepath.Join(root, "*", "model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	configs, err := filepath.Glob(filepath.Join(root, "*", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range configs {
		files = append(files, filepath.Dir(f))
	}
	for _, f := range files {
		file, err := weights.Open(f)
		if errors.Is(err, hf.ErrUnknownArchitecture) || errors.Is(err, hf.ErrQuantized) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = model.Open(file)
		file.Close()
		if errors.Is(err, model.ErrUnknownArchitecture) {
			continue
		}
		dir := strings.TrimSuffix(f, string(filepath.Separator)+"model.gguf")
		g := golden.Tensors(t, filepath.Join(dir, "golden.safetensors"))
		cases = append(cases, tinyCase{"family-" + filepath.Base(dir) + filepath.Ext(f), f, g["input_ids"].Ints(), g["logits"].Floats(), [][]int{g["greedy_ids"].Ints(), g["greedy_ids_cached"].Ints()}})
	}
	return cases
}

// made are models of families and forms that have no golden, with the logits of hftest's slow forward pass.
func made(t *testing.T) (cases []tinyCase) {
	ids := []int{3, 31, 7, 7, 12, 0, 25, 18, 4, 9, 30, 1, 2, 22, 17, 6, 5, 11, 28, 14, 8, 19, 3, 27, 10, 16}
	for name, build := range map[string]func() (hftest.Config, hftest.Shapes){
		"made-qwen": hftest.Qwen,
		"made-opt":  func() (hftest.Config, hftest.Shapes) { return hftest.OPT(8, true) },
	} {
		c, shapes := build()
		dir := hftest.Folder(t, c, shapes)
		meta, tensors, closer, err := hf.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		slow, err := hftest.New(meta, tensors)
		if err != nil {
			t.Fatal(err)
		}
		want := tinyCase{name: name, path: dir, ids: ids, greedy: [][]int{slow.Greedy(ids, 6, true)}}
		for _, row := range slow.Logits(ids, 0) {
			for _, x := range row {
				want.logits = append(want.logits, float32(x))
			}
		}
		if err := closer.Close(); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, want)
	}
	return cases
}

// options are models with an option that no golden model has, with transformers' logits (golden.json says of what version).
func options(t *testing.T) (cases []tinyCase) {
	files, err := filepath.Glob(filepath.Join("testdata", "options", "*", "golden.json"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d models with options, want 5: %v", len(files), err)
	}
	for _, f := range files {
		var g struct {
			IDs    []int
			Logits [][]float32
		}
		data, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(data, &g)
		}
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(f)
		cases = append(cases, tinyCase{name: "options-" + filepath.Base(dir), path: dir, ids: g.IDs, logits: slices.Concat(g.Logits...)})
	}
	return cases
}

// TestBackendsAgree runs every tiny model, one at least of each architecture, on every backend, in float32: prefill logits of all
// positions in two chunks, and the greedy continuation where it is known.
func TestBackendsAgree(t *testing.T) {
	t.Parallel()
	cases := slices.Concat(tinyHF(t), tinyGGUF(t), made(t), families(t), options(t))
	seen := map[string]bool{}
	for _, c := range cases {
		seen[openModel(t, c.path, Options{}).Model().Arch] = true
	}
	for _, arch := range model.Architectures() {
		if !seen[arch] {
			t.Errorf("no tiny model is a %s", arch)
		}
	}
	if len(cases) < 30 {
		t.Errorf("%d tiny models, want at least 30", len(cases))
	}
	for _, backend := range parityBackends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			refused, ran := map[string]bool{}, 0
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					ran++
					c.check(t, backend, refused)
				})
			}
			if ran < len(cases) {
				return // some were asked for by name
			}
			if _, graphs := openModel(t, cases[0].path, Options{Backend: backend}).backend.(xla.Counter); graphs && !t.Failed() {
				if got, want := slices.Sorted(maps.Keys(refused)), graphsRefuse(t); !slices.Equal(got, want) {
					t.Errorf("refuses\n%q, docs/backends.md says\n%q", got, want)
				}
			}
		})
	}
}

// graphsRefuse are the architectures that the page of backends says graph backends refuse.
func graphsRefuse(t *testing.T) (list []string) {
	page, err := os.ReadFile("../docs/backends.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "`gomlx:go` and `xla` refuse")
	said, _, ok := strings.Cut(after, ".")
	if !ok {
		t.Fatal("docs/backends.md does not say what gomlx and XLA refuse")
	}
	for i, name := range strings.Split(said, "`") {
		if i%2 == 1 {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// xlaFamilies have between them every kind of layer that XLA computes; golden.Thorough runs all families.
var xlaFamilies = []string{"family-gemma4", "family-gemma4_moe", "family-gpt_oss_mxfp4", "family-lfm2", "family-lfm3", "family-qwen3_5", "family-qwen3_next"}

// check holds a backend to the case's logits and text. A model that it refuses, as it may, is noted by its architecture.
func (c tinyCase) check(t *testing.T, backend string, refused map[string]bool) {
	m := openFile(t, c.path)
	if e, err := Open(m, Options{Backend: backend, Exact: true}); err == nil {
		e.Close()
	} else if plain := m.OnlyPlain(backend) == nil; errors.Is(err, model.ErrUnsupported) && backend != "native" && !plain {
		if !strings.HasPrefix(c.name, "options-") { // an option may be refused where its architecture is not
			refused[m.Arch] = true
		}
		return
	} else {
		t.Fatal(err)
	}
	if strings.HasPrefix(backend, "xla:") && strings.HasPrefix(c.name, "family-") && !slices.Contains(xlaFamilies, c.name) && !golden.Thorough() {
		return // gomlx:go builds the same programs, which XLA takes seconds to compile; a GGUF twin has those of its folder
	}
	e := openModel(t, c.path, Options{Backend: backend, Exact: true, ChunkTokens: 24})
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got []float32
	err = s.Prefill(context.Background(), c.ids, PrefillHooks{Each: func(_ int, logits []float32) error {
		got = append(got, logits...)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if d := relativeDifference(got, c.logits); !(d <= parityLimit) {
		t.Errorf("logits differ by %.2g, want %.0g", d, parityLimit)
	}
	if c.greedy == nil {
		return
	}
	var ids []int
	n := len(c.greedy[0])
	if backend != "native" {
		n = min(n, 6) // gorgonia builds graphs for each step
	}
	for range n {
		ids = append(ids, argMax(s.Logits()))
		if err := s.Decode(ids[len(ids)-1]); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.ContainsFunc(c.greedy, func(want []int) bool { return slices.Equal(ids, want[:n]) }) {
		t.Errorf("greedy ids %v, want %v", ids, c.greedy[0])
	}
}

// TestMixersAgree takes texts of different lengths, one of which has no row, through recurrent layers from states that are not zero: what each
// backend that has such layers makes of the rows, and the states behind them, are the native ones.
func TestMixersAgree(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range families(t) {
		m := openFile(t, c.path)
		layer := slices.IndexFunc(m.Layer, func(l model.LayerConfig) bool { return l.Recurs() })
		if layer < 0 {
			continue
		}
		key := fmt.Sprintf("%+v %+v %+v", m.Layer[layer].Conv, m.Layer[layer].Delta, m.Layer[layer].SSM)
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, rows := range [][]int{{1}, {1, 1, 1}, {3, 0, 140, 1}} {
			want, states := mixedRows(t, m, "native", layer, rows)
			for _, backend := range parityBackends[1:] {
				got, after := mixedRows(t, m, backend, layer, rows)
				if got == nil {
					continue
				}
				if a, b := relativeDifference(got, want), relativeDifference(after, states); !(a <= parityLimit && b <= parityLimit) {
					t.Errorf("%s on %s, texts of %v rows: rows differ by %.2g, states by %.2g", c.name, backend, rows, a, b)
				}
			}
		}
	}
}

// mixedRows is what a layer's recurrent mixer makes of texts of so many rows, and their states; nil where a backend does not compute it.
func mixedRows(t *testing.T, m *model.Model, backend string, layer int, texts []int) (out, states []float32) {
	b, err := model.OpenBackend(backend, m, model.BackendOptions{Threads: 2})
	if errors.Is(err, model.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	random := rand.New(rand.NewPCG(7, 7))
	numbers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = random.Float32()*2 - 1
		}
		return x
	}
	var rows []model.StateRows
	pass := &model.Pass{Phase: kernels.Exact}
	size := m.Cache()[layer].State.Bytes / 4
	for _, n := range texts {
		rows = append(rows, model.StateRows{Rows: n, From: numbers(size), State: numbers(size)})
		for i := range n {
			pass.Pos = append(pass.Pos, int32(i))
		}
	}
	n := len(pass.Pos)
	hidden := tensor.New(tensor.WithShape(n, m.RowWidth()), tensor.WithBacking(numbers(n*m.RowWidth())))
	mixed, err := b.(model.Recurrent).Mix(pass, layer, hidden, rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		states = append(states, r.State...)
	}
	if mixed == nil { // what it made was added to the rows
		mixed = hidden
	}
	return slices.Clone(floats(mixed)), states
}

// relativeDifference is max |x - want| / max |want|; NaN where lengths differ.
func relativeDifference(x, want []float32) float64 {
	if len(x) != len(want) {
		return math.NaN()
	}
	var worst, largest float64
	for i := range x {
		d := math.Abs(float64(x[i]) - float64(want[i]))
		if !(d <= math.MaxFloat32) {
			return math.NaN()
		}
		worst, largest = max(worst, d), max(largest, math.Abs(float64(want[i])))
	}
	return worst / largest
}

func argMax(x []float32) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}

// TestDecodeCompilesNothing decodes within one bucket of context: after the first step no program is compiled and no weight
// goes up again, and of the model's inputs only the token's id, its position and angles and the keys and values do.
func TestDecodeCompilesNothing(t *testing.T) {
	for _, backend := range parityBackends {
		t.Run(backend, func(t *testing.T) {
			e := openModel(t, golden.Shared(t, "data", "golden", "tiny_hf", "llama_gqa"), Options{Backend: backend})
			counter, ok := e.backend.(xla.Counter)
			if !ok {
				t.Skip("compiles no programs")
			}
			s, err := e.NewSession(e.Policy())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Prefill(context.Background(), []int{1, 2, 3, 4, 5}, PrefillHooks{}); err != nil {
				t.Fatal(err)
			}
			if err := s.Decode(6); err != nil {
				t.Fatal(err)
			}
			before := counter.Counts()
			for id := range 50 {
				if err := s.Decode(id); err != nil {
					t.Fatal(err)
				}
			}
			after := counter.Counts()
			if after.Programs != before.Programs || after.WeightBytes != before.WeightBytes {
				t.Errorf("50 tokens compiled %d programs and uploaded %d bytes of weights, want none",
					after.Programs-before.Programs, after.WeightBytes-before.WeightBytes)
			}
		})
	}
}

// TestBackendMass compares attention weights, which H2O-like policies keep tokens by: the same tokens must be kept on every
// backend.
func TestBackendMass(t *testing.T) {
	g := golden.Tensors(t, golden.Shared(t, "data", "golden", "tiny_hf", "qwen3", "golden.safetensors"))
	var first []float32
	for _, backend := range parityBackends {
		e := openModel(t, golden.Shared(t, "data", "golden", "tiny_hf", "qwen3"), Options{Backend: backend, Exact: true, Policy: "h2o:budget=16"})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(context.Background(), g["input_ids"].Ints(), PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		for id := range 4 {
			if err := s.Decode(id); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.Logits(); first == nil {
			first = slices.Clone(got)
		} else if d := relativeDifference(got, first); !(d <= parityLimit) {
			t.Errorf("%s: logits under h2o differ from the native ones by %.2g", backend, d)
		}
		s.Close()
	}
}
