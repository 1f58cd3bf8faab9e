package engine

import (
	"errors"
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/cacheshape"
	"terrace/model"
	"terrace/policy"
)

// maskReference is the small model's forward pass in plain loops where each layer's attention is what a policy's mask, asked
// with softmax weights and keys computed by loops too, lets each query see.
func maskReference(t *testing.T, m *model.Model, spec string, ids []int) []float64 {
	t.Helper()
	parsed, err := policy.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	set, err := parsed.New(policy.Model{Layers: cacheshape.Equal(m.Layers, m.Layer[0].Heads, cacheshape.KV{Heads: m.Layer[0].KVHeads, KeyDim: m.Layer[0].KeyDim, ValueDim: m.Layer[0].ValDim})})
	if err != nil {
		t.Fatal(err)
	}
	p := plain{m: m}
	p.mask = func(layer int, q, k [][]float64) func(head, query, key int) bool {
		n := len(q)
		l := &policy.Layer{Index: layer, Layers: m.Layers, Heads: m.Layer[0].Heads, KVHeads: m.Layer[0].KVHeads, KeyDim: m.Layer[0].KeyDim, ValueDim: m.Layer[0].ValDim, N: n, Prompt: n, Rows: n}
		l.WeightRows = min(n, set.Needs().Weights)
		positions := make([]int32, n)
		for i := range n {
			positions[i] = int32(i)
			for _, x := range q[i] {
				l.Queries = append(l.Queries, float32(x))
			}
		}
		l.Pos = slices.Repeat([][]int32{positions}, m.Layer[0].KVHeads)
		l.KV = plainKeys{m: m, k: k}
		l.Weights = func(h int, rows []float32) {
			clear(rows)
			for r := range l.WeightRows {
				at := n - l.WeightRows + r
				for j, w := range p.weights(q[at], k[:at+1], h, nil) {
					rows[r*n+j] = float32(w)
				}
			}
		}
		mask := &policy.Mask{}
		set.Masker.MaskPrompt(l, mask)
		return mask.Sees
	}
	return p.run(t, ids)
}

// plainKeys is policy.KV over loops' keys.
type plainKeys struct {
	m *model.Model
	k [][]float64
}

func (p plainKeys) Keys(kvHead, from, to int, dst []float32) {
	for i := from; i < to; i++ {
		for d := range p.m.Layer[0].KeyDim {
			dst[(i-from)*p.m.Layer[0].KeyDim+d] = float32(p.k[i][kvHead*p.m.Layer[0].KeyDim+d])
		}
	}
}

func (p plainKeys) Values(int, int, int, []float32) { panic("a mask is chosen from keys") }

// maskSpecs leave out much of a short prompt.
var maskSpecs = []string{"minference:vertical=2000,slash=6000,first=4,newest=8,min_slash=12", "minference:vertical=2000,slash=6000,first=4,newest=8,min_slash=12,pattern=search",
	"flexprefill:block=16,min_budget=16,gamma=0.3", "flexprefill:block=32,min_budget=32,gamma=0.5,tau=9",
	"minference:vertical=2000,slash=6000,first=4,newest=8,min_slash=12,pattern=a_shape", "minference:vertical=8000,slash=8000,first=4,newest=8,min_slash=12,pattern=block_sparse"}

// TestMasksMatchPlainLoops: the engine's prompt under a mask ends in the logits of loops that look at the visible pairs only.
func TestMasksMatchPlainLoops(t *testing.T) {
	t.Parallel()
	e := small(t, Options{})
	for i, spec := range maskSpecs {
		ids := fakes.IDs(150+i, 60+uint64(i))
		want := maskReference(t, e.m, spec, ids)
		s := prefilled(t, small(t, Options{Exact: true, Policy: spec, ChunkTokens: 48}), ids)
		var most float64
		for j, x := range s.Logits() {
			most = max(most, want[j]-float64(x), float64(x)-want[j])
		}
		if most > 1e-3 {
			t.Errorf("%s: logits differ by %g", spec, most)
		}
		full := prefilled(t, e, ids).FLOPs().Attention
		if got := s.FLOPs().Attention; got >= full*9/10 {
			t.Errorf("%s: %d operations in attention, full has %d", spec, got, full)
		}
	}
}

// TestMasksDoNotDependOnChunks: pass size, page size and threads change no bit; a mask that leaves nothing out is near full;
// what cannot be masked is refused.
func TestMasksDoNotDependOnChunks(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 31), fakes.IDs(5, 32)
	for _, spec := range append(maskSpecs, maskSpecs[0]+"+snapkv:budget=64,window_size=8", maskSpecs[2]+"+quest:budget=32", maskSpecs[0]+"+tova:budget=50") {
		want := forced(t, small(t, Options{Threads: 1, Policy: spec}), prompt, next)
		for _, o := range []Options{{ChunkTokens: 16}, {ChunkTokens: 100, PageTokens: 32}, {ChunkTokens: 4096, Threads: 2}} {
			o.Policy = spec
			if d := fakes.Worst(want, forced(t, small(t, o), prompt, next)); d != 0 {
				t.Errorf("%s, passes of %d: logits differ by %g", spec, o.ChunkTokens, d)
			}
		}
	}
	full := forced(t, small(t, Options{}), prompt, next)
	for _, spec := range []string{"minference:vertical=32k,slash=32k", "flexprefill:min_budget=300"} {
		if d := fakes.Worst(full, forced(t, small(t, Options{Policy: spec}), prompt, next)); d > 1e-5 {
			t.Errorf("%s: logits differ from full by %g", spec, d)
		}
	}
	for _, spec := range []string{"minference", "flexprefill", "sliminfer", "lazyllm"} {
		parsed, err := policy.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := small(t, Options{}).OwnRows(parsed); ok {
			t.Errorf("%s is content with the last %d rows of a prompt", spec, n)
		}
	}
	for _, spec := range []string{"minference+h2o", "flexprefill+observed_attention"} {
		if _, err := sessionOf(small(t, Options{Policy: spec})); !errors.Is(err, model.ErrUnsupported) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	if s, err := sessionOf(small(t, Options{Policy: "flexprefill:block=24,min_budget=24"})); err != nil {
		t.Error(err)
	} else {
		defer s.Close()
		if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); !errors.Is(err, model.ErrUnsupported) {
			t.Errorf("blocks of 24: %v", err)
		}
	}
}

// sessionOf is a session under the engine's own policy.
func sessionOf(e *Engine) (*Session, error) { return e.NewSession(e.Policy()) }
