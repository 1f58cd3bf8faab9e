package policy

import (
	"encoding/csv"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"terrace/internal/cacheshape"
	"terrace/internal/golden"
)

// noKeys are keys of zeros: shapes alone decide how much is kept.
type noKeys struct{}

func (noKeys) Keys(_, _, _ int, dst []float32)   { clear(dst) }
func (noKeys) Values(_, _, _ int, dst []float32) { clear(dst) }

// alivePerLayer runs a pruner's decisions over a prompt of n tokens and returns the prompt tokens with KV in each layer.
func alivePerLayer(t *testing.T, spec string, m Model, n int) []int {
	t.Helper()
	parsed, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	set, err := parsed.New(m)
	if err != nil {
		t.Fatal(err)
	}
	alive := span(nil, 0, n)
	out := make([]int, len(m.Layers))
	for layer := range len(m.Layers) {
		out[layer] = len(alive)
		if !slices.Contains(set.Pruner.PruneLayers(), layer) {
			continue
		}
		l := &Layer{Index: layer, Layers: len(m.Layers), Heads: 1, KVHeads: 1, KeyDim: 1, ValueDim: 1, N: n, Prompt: n, Pos: [][]int32{alive},
			KV: noKeys{}, Queries: make([]float32, 4), Rows: 4}
		var rows Rows
		set.Pruner.KeepRows(l, alive, &rows)
		if !rows.All {
			alive = slices.Clone(rows.Pos)
		}
	}
	return out
}

// TestSlimInferKVBytes: what stays of a prompt is the paper's Table 2, to 0.01 GiB and 0.1 %, for Llama 3.1 8B, and its
// formula (algorithms.md 3.3) for Qwen 2.5 7B.
func TestSlimInferKVBytes(t *testing.T) {
	f, err := os.Open(golden.Shared(t, "papers", "tables", "sliminfer_table2_kvmem.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	llama := Model{Layers: cacheshape.Equal(32, 32, cacheshape.KV{Heads: 8, KeyDim: 128, ValueDim: 128}), Hidden: 4096}
	cells := 0
	for _, row := range rows[1:] {
		n, err := strconv.Atoi(row[3])
		if err != nil {
			t.Fatal(err)
		}
		want, err := strconv.ParseFloat(row[4], 64)
		if err != nil {
			t.Fatal(err)
		}
		full := gib(llama, slices.Repeat([]int{n}, len(llama.Layers)))
		slim := gib(llama, alivePerLayer(t, "sliminfer", llama, n))
		got, limit := full, 0.0051
		switch row[1] {
		case "SlimInfer":
			got = slim
		case "Memory saving":
			got, limit = 100*(1-slim/full), 0.051
		}
		if math.Abs(got-want) > limit {
			t.Errorf("%s at %d tokens: %.3f, want %.2f %s", row[1], n, got, want, row[5])
		}
		cells++
	}
	if cells != 15 {
		t.Errorf("%d cells of Table 2, want 15", cells)
	}
	qwen := Model{Layers: cacheshape.Equal(28, 28, cacheshape.KV{Heads: 4, KeyDim: 128, ValueDim: 128}), Hidden: 3584}
	for _, n := range []int{8 << 10, 16 << 10, 32 << 10} {
		want := slices.Concat(slices.Repeat([]int{n}, 9), slices.Repeat([]int{min(n, 12<<10)}, 9), slices.Repeat([]int{min(n, 6<<10)}, 8), slices.Repeat([]int{min(n, 4<<10)}, 2))
		if got := alivePerLayer(t, "sliminfer", qwen, n); !slices.Equal(got, want) {
			t.Errorf("Qwen 2.5 7B at %d tokens keeps %v, want %v", n, got, want)
		}
	}
}

// TestSlimInferPresets: the layers and budgets that stand for other models, and those of preset=early.
func TestSlimInferPresets(t *testing.T) {
	deep := Model{Layers: cacheshape.Equal(30, 9, cacheshape.KV{Heads: 3}), Hidden: 576}
	sliding := Model{Layers: cacheshape.Equal(18, 4, cacheshape.KV{Heads: 1}), Hidden: 640}
	for i := range sliding.Layers {
		if (i+1)%6 != 0 {
			sliding.Layers[i].KV.Window = 512
		}
	}
	for _, c := range []struct {
		spec  string
		m     Model
		after map[int]int // 0-based layer → tokens from there on, of 6400
	}{
		{"sliminfer", deep, map[int]int{0: 6400, 9: 1600, 19: 768, 28: 384}},
		{"sliminfer:preset=early", deep, map[int]int{0: 6400, 6: 3200, 9: 1600, 19: 768}},
		{"sliminfer:preset=early", Model{Layers: cacheshape.Equal(16, 32, cacheshape.KV{Heads: 8}), Hidden: 2048}, map[int]int{0: 6400, 3: 3200, 5: 1600, 10: 768}},
		{"sliminfer", sliding, map[int]int{0: 6400, 6: 1600, 12: 768}},
		{"sliminfer:preset=early", sliding, map[int]int{0: 6400, 6: 3200, 12: 768}},
	} {
		want := make([]int, len(c.m.Layers))
		for i := range want {
			if n, ok := c.after[i]; ok {
				want[i] = n
			} else {
				want[i] = want[i-1]
			}
		}
		if got := alivePerLayer(t, c.spec, c.m, 6400); !slices.Equal(got, want) {
			t.Errorf("%s of %d layers keeps %v, want %v", c.spec, len(c.m.Layers), got, want)
		}
	}
}

// gib is the prompt's KV in half precision.
func gib(m Model, tokens []int) float64 {
	sum := 0
	for _, n := range tokens {
		sum += n
	}
	return float64(sum) * float64(m.Layers[0].KV.Heads*(m.Layers[0].KV.KeyDim+m.Layers[0].KV.ValueDim)*2) / (1 << 30)
}

// TestSlimInferBudget: as many blocks go on as fit the budget whole beside a last block that may be short.
func TestSlimInferBudget(t *testing.T) {
	for _, c := range []struct{ n, tokens, blocks int }{
		{2048, 1024, 16}, {2048, 1000, 15}, {2000, 1024, 16}, {7500, 1875, 30}, {700, 350, 5}, {700, 316, 5}, {700, 315, 4}, {65, 64, 2}, {700, 10, 2}, {700, 700, maxTokens},
	} {
		b := blocks{layers: []int{0}, budgets: []Budget{tokensBudget(c.tokens)}, size: 64}
		if got := b.blockBudget(&Layer{N: c.n}); got != c.blocks {
			t.Errorf("%d of %d tokens: %d blocks, want %d", c.tokens, c.n, got, c.blocks)
		}
	}
}

// TestLeaving: as many rows leave as is said before.
func TestLeaving(t *testing.T) {
	for _, spec := range []string{"sliminfer:layers=2/5/9,keep=112/64/48,block=16,unit=4", "sliminfer:layers=2/5,keep=50%/25%,block=16", "sliminfer:layers=2,keep=64k", "lazyllm:layers=3/6/8,keep=50%/40%/60%"} {
		for n := 40; n < 300; n += 37 {
			s := randomScene(uint64(n), n, 4, 2, 16)
			s.layers = 12
			p := mustSet(t, spec, s).Pruner
			alive := span(nil, 0, n)
			for _, layer := range p.PruneLayers() {
				s.pos = [][]int32{alive, alive}
				alive = pruned(s, p, layer, alive)
			}
			if got, want := p.Leaving(n, 1), n-len(alive); got != want {
				t.Errorf("%s: %d of %d rows leave, said %d", spec, want, n, got)
			}
		}
	}
}
