package model_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/weights"
	"terrace/weights/hf"
	"terrace/weights/hf/hftest"
)

// runner drives a backend over one sequence with exact float32 KV, as the engine does, without the engine.
type runner struct {
	t      *testing.T
	m      *model.Model
	b      model.Backend
	layout kvpage.Layout
	views  [][]attention.View // [layer][KV head]
	tokens int
}

func newRunner(t *testing.T, dir string) *runner {
	t.Helper()
	file, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := model.OpenBackend("native", m, model.BackendOptions{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	r := &runner{t: t, m: m, b: b, layout: kvpage.Layout{KeyDim: m.KeyDim, ValueDim: m.ValDim, Tokens: 16}}
	r.views = make([][]attention.View, m.Layers)
	for l := range r.views {
		r.views[l] = make([]attention.View, m.KVHeads)
		for g := range r.views[l] {
			r.views[l][g].Layout = r.layout
		}
	}
	return r
}

// store appends one token's key and value to the pages of a layer and head.
func (r *runner) store(v *attention.View, pos int32, key, val []float32) {
	if n := len(v.Pages); n == 0 || v.Pages[n-1].N == r.layout.Tokens {
		v.Pages = append(v.Pages, attention.Page{Data: make([]byte, r.layout.PageBytes())})
	}
	p := &v.Pages[len(v.Pages)-1]
	kvpage.PutK(r.layout, p.Data, p.N, key)
	kvpage.PutV(r.layout, p.Data, p.N, val)
	p.Pos, p.N = append(p.Pos, pos), p.N+1
}

// pass reads ids and returns the logits of each. length is that of the whole prompt they are part of.
func (r *runner) pass(ids []int, length int) [][]float32 {
	r.t.Helper()
	p := &model.Pass{Phase: kernels.Exact}
	ids32 := make([]int32, len(ids))
	for i, id := range ids {
		ids32[i] = int32(id)
		p.Pos = append(p.Pos, int32(r.tokens+i))
		p.Len = append(p.Len, int32(length))
	}
	must := func(err error) {
		if err != nil {
			r.t.Helper()
			r.t.Fatal(err)
		}
	}
	hidden, err := r.b.Embed(p, ids32)
	must(err)
	for l := range r.m.Layers {
		q, k, v, err := r.b.Project(p, l, hidden)
		must(err)
		kd, vd := k.Data().([]float32), v.Data().([]float32)
		for i := range ids {
			for g := range r.m.KVHeads {
				at := i*r.m.KVHeads + g
				r.store(&r.views[l][g], p.Pos[i], kd[at*r.m.KeyDim:][:r.m.KeyDim], vd[at*r.m.ValDim:][:r.m.ValDim])
			}
		}
		out, err := r.b.Attend(p, l, q, []attention.Seq{{Pos: p.Pos, Views: r.views[l]}})
		must(err)
		hidden, err = r.b.Finish(p, l, hidden, out)
		must(err)
	}
	logits, err := r.b.Logits(p, hidden)
	must(err)
	r.tokens += len(ids)
	return slices.Collect(slices.Chunk(slices.Clone(logits.Data().([]float32)), r.m.Vocab))
}

// greedy continues by n tokens after the last row of logits, one pass a token.
func (r *runner) greedy(last []float32, n int) (ids []int) {
	for range n {
		best := 0
		for i, x := range last {
			if x > last[best] {
				best = i
			}
		}
		ids = append(ids, best)
		last = r.pass([]int{best}, r.tokens+1)[0]
	}
	return ids
}

// worst is max |got − want| / max |want|.
func worst[F float32 | float64](got [][]float32, want [][]F) float64 {
	off, top := 0.0, 0.0
	for p := range got {
		for i, x := range got[p] {
			w := float64(want[p][i])
			off, top = max(off, math.Abs(float64(x)-w)), max(top, math.Abs(w))
		}
	}
	return off / top
}

func shared(t *testing.T, parts ...string) string {
	t.Helper()
	root := os.Getenv("TERRACE_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "shared")
	}
	path := filepath.Join(append([]string{root}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there (set TERRACE_SHARED)", path)
	}
	return path
}

// golden is what Hugging Face computed for one model.
type golden struct {
	ids, greedy, cached []int
	logits              []float32
}

func readGolden(t *testing.T, path string) golden {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	var header map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	data := func(name string) []byte { o := header[name].Offsets; return b[8+int(n):][o[0]:o[1]] }
	ints := func(name string) (out []int) {
		for d := data(name); len(d) > 0; d = d[8:] {
			out = append(out, int(binary.LittleEndian.Uint64(d)))
		}
		return out
	}
	g := golden{ids: ints("input_ids"), greedy: ints("greedy_ids"), cached: ints("greedy_ids_cached")}
	for d := data("logits"); len(d) > 0; d = d[4:] {
		g.logits = append(g.logits, math.Float32frombits(binary.LittleEndian.Uint32(d)))
	}
	return g
}

// TestHuggingFace compares every model of the goldens with Hugging Face's float32 logits, read in one pass, in chunks, and
// decoded with a cache. Where the two greedy rows of a golden differ (dynamic rope scaling) ours is the cached one: a key
// keeps the rotation it was written with.
func TestHuggingFace(t *testing.T) {
	root := shared(t, "data", "golden", "tiny_hf")
	dirs, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		t.Run(d.Name(), func(t *testing.T) {
			dir := filepath.Join(root, d.Name())
			g := readGolden(t, filepath.Join(dir, "golden.safetensors"))
			r := newRunner(t, dir)
			want := slices.Collect(slices.Chunk(g.logits, r.m.Vocab))
			got := r.pass(g.ids, len(g.ids))
			if off := worst(got, want); off > 2e-4 {
				t.Errorf("max |Δlogit| is %.2g of the largest logit, want at most 2e-4", off)
			}
			if ids := r.greedy(got[len(got)-1], len(g.cached)); !slices.Equal(ids, g.cached) {
				t.Errorf("greedy ids %v, want %v", ids, g.cached)
			}
			r = newRunner(t, dir)
			chunked := append(r.pass(g.ids[:17], len(g.ids)), r.pass(g.ids[17:], len(g.ids))...)
			if off := worst(chunked, want); off > 2e-4 {
				t.Errorf("in two chunks: max |Δlogit| is %.2g of the largest logit, want at most 2e-4", off)
			}
		})
	}
}

// variants are models that no golden has; the slow forward pass of hftest is their reference.
func variants() map[string]func() (hftest.Config, hftest.Shapes) {
	type config = hftest.Config
	decoder := func(change config, extra map[string][]int) func() (config, hftest.Shapes) {
		return func() (config, hftest.Shapes) {
			c := hftest.Llama().With(change)
			s := hftest.Decoder(c)
			for name, shape := range extra {
				s.EachLayer("model.layers.%d.", 2, name, shape...)
			}
			return c, s
		}
	}
	qkNorm := map[string][]int{"self_attn.q_norm.weight": {8}, "self_attn.k_norm.weight": {8}}
	gemmaNorms := map[string][]int{"pre_feedforward_layernorm.weight": {16}, "post_feedforward_layernorm.weight": {16},
		"self_attn.q_norm.weight": {8}, "self_attn.k_norm.weight": {8}}
	yarn := func(p config) config {
		return config{"rope_scaling": config{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16}.With(p)}
	}
	return map[string]func() (config, hftest.Shapes){
		"qwen v1":           hftest.Qwen,
		"opt-350m":          func() (config, hftest.Shapes) { return hftest.OPT(8, true) },
		"opt after":         func() (config, hftest.Shapes) { return hftest.OPT(16, true) },
		"partial rotary":    decoder(config{"partial_rotary_factor": 0.5}, nil),
		"gelu":              decoder(config{"hidden_act": "gelu"}, nil),
		"relu":              decoder(config{"hidden_act": "relu"}, nil),
		"yarn mscale":       decoder(yarn(config{"mscale": 0.7, "mscale_all_dim": 1.0}), nil),
		"yarn no truncate":  decoder(yarn(config{"truncate": false, "beta_fast": 8}), nil),
		"yarn attention":    decoder(yarn(config{"attention_factor": 1.25}), nil),
		"longrope in llama": decoder(config{"rope_scaling": config{"type": "longrope", "factor": 4, "original_max_position_embeddings": 8, "long_factor": []float64{1, 2, 3, 4}, "short_factor": []float64{1, 1, 1.5, 2}}}, nil),
		"mistral":           decoder(config{"model_type": "mistral", "sliding_window": 5}, nil),
		"smollm3 sliding":   decoder(config{"model_type": "smollm3", "no_rope_layer_interval": 2, "use_sliding_window": true, "sliding_window": 6}, nil),
		"qwen2 sliding": decoder(config{"model_type": "qwen2", "head_dim": nil, "use_sliding_window": true, "sliding_window": 6, "max_window_layers": 1},
			map[string][]int{"self_attn.q_proj.bias": {16}, "self_attn.k_proj.bias": {8}, "self_attn.v_proj.bias": {8}}),
		"qwen3 sliding": decoder(config{"model_type": "qwen3", "use_sliding_window": true, "sliding_window": 6, "max_window_layers": 0}, qkNorm),
		"qwen3 dense and sparse layers": func() (config, hftest.Shapes) {
			c := hftest.Llama().With(config{"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
				"mlp_only_layers": []int{0}, "norm_topk_prob": false})
			s := hftest.Decoder(c).EachLayer("model.layers.%d.", 2, "self_attn.q_norm.weight", 8).EachLayer("model.layers.%d.", 2, "self_attn.k_norm.weight", 8)
			s["model.layers.1.mlp.gate.weight"] = []int{4, 16}
			s.EachLayer("model.layers.1.mlp.experts.%d.", 4, "gate_proj.weight", 8, 16)
			s.EachLayer("model.layers.1.mlp.experts.%d.", 4, "up_proj.weight", 8, 16)
			s.EachLayer("model.layers.1.mlp.experts.%d.", 4, "down_proj.weight", 16, 8)
			return c, s
		},
		"gemma3 linear": decoder(config{"model_type": "gemma3_text", "tie_word_embeddings": nil, "sliding_window": 6, "layer_types": []string{"sliding_attention", "full_attention"},
			"rope_scaling": config{"rope_type": "linear", "factor": 8}, "rope_theta": 1e6}, gemmaNorms),
		"gemma3 all sliding": decoder(config{"model_type": "gemma3_text", "tie_word_embeddings": nil, "sliding_window": 6, "attn_logit_softcapping": 5, "final_logit_softcapping": 9,
			"layer_types": []string{"sliding_attention", "sliding_attention"}}, gemmaNorms),
	}
}

// TestVariants compares models without a golden with the independent float64 forward pass: logits of a prompt and a greedy
// continuation with the cache.
func TestVariants(t *testing.T) {
	ids := []int{3, 31, 7, 7, 12, 0, 25, 18, 4, 9, 30, 1, 2, 22, 17, 6, 5, 11, 28, 14}
	for name, build := range variants() {
		t.Run(name, func(t *testing.T) {
			c, shapes := build()
			dir := hftest.Folder(t, c, shapes)
			meta, tensors, closer, err := hf.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer closer.Close()
			slow, err := hftest.New(meta, tensors)
			if err != nil {
				t.Fatal(err)
			}
			r := newRunner(t, dir)
			got := r.pass(ids, len(ids))
			if off := worst(got, slow.Logits(ids, 0)); off > 2e-5 || math.IsNaN(off) {
				t.Errorf("max |Δlogit| is %.2g of the largest logit, want at most 2e-5", off)
			}
			if have, want := r.greedy(got[len(got)-1], 12), slow.Greedy(ids, 12, true); !slices.Equal(have, want) {
				t.Errorf("greedy ids %v, want %v", have, want)
			}
		})
	}
}
