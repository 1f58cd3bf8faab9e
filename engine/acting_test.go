package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/cacheshape"
	"terrace/policy"
)

// latentOnly is a model all of whose layers keep latent keys; with sinks where asked.
func latentOnly(t testing.TB, o Options) *Engine {
	t.Helper()
	m := fakes.Mixed(5)
	l := m.Layer[4]
	for i := range m.Layer {
		m.Layer[i], m.Params.Layers[i] = l, m.Params.Layers[4]
		m.Layer[i].Owner = i
	}
	if o.Threads == 0 {
		o.Threads = 2
	}
	return openOn(t, m, o)
}

// TestLatentSelection: policies choose latent keys by the token, as many as their budget says, in every arithmetic; a budget of everything is full
// attention.
func TestLatentSelection(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(200, 1), fakes.IDs(4, 2)
	for _, exact := range []bool{false, true} {
		full := forced(t, latentOnly(t, Options{Exact: exact}), prompt, next)
		for name, budget := range map[string]string{"h2o": "budget=48", "snapkv": "budget=48", "tova": "budget=48", "quest": "budget=48,dense_layers=0", "hillinfer": "alpha=0.24,guess_from=0", "topk": "budget=48"} {
			t.Run(fmt.Sprint(name, " ", exact), func(t *testing.T) {
				e := latentOnly(t, Options{Exact: exact, Policy: name + ":" + budget})
				s, err := e.NewSession(e.Policy())
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if err := errors.Join(s.Prefill(t.Context(), prompt, PrefillHooks{}), s.Decode(next[0]), s.Decode(next[1])); err != nil {
					t.Fatal(err)
				}
				u := s.KVUse()
				if u.TokensRead < 40 || u.TokensRead > 52 {
					t.Errorf("a step reads %g tokens, want about 48", u.TokensRead)
				}
				if drops := s.text.Policy().Selector == nil; drops != (u.Tokens < 60) {
					t.Errorf("%g tokens are kept", u.Tokens)
				}
				if slices.Equal(s.Logits(), full[2]) {
					t.Error("the logits are full attention's")
				}
				everything := map[bool]string{false: "budget=100%", true: "alpha=1"}[name == "hillinfer"]
				if d := fakes.Worst(full, forced(t, latentOnly(t, Options{Exact: exact, Policy: name + ":" + everything}), prompt, next)); d != 0 {
					t.Errorf("%s differs from full by %g", everything, d)
				}
			})
		}
	}
}

// TestBudgetsCountWhatActs: a budget in bytes is that of the layers that a policy acts on, and the rest of a text's bytes is told.
func TestBudgetsCountWhatActs(t *testing.T) {
	t.Parallel()
	prompt := fakes.IDs(200, 1)
	e := mixed(t, Options{})
	acting, all := e.ActingBytesPerToken(), e.KVBytesPerToken()
	if acting <= 0 || acting >= all {
		t.Fatalf("%d bytes a token of %d are acted on", acting, all)
	}
	e = mixed(t, Options{Policy: fmt.Sprintf("streaming_llm:budget=%dB", 60*acting)})
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	m := policy.Model{Layers: e.cache}
	for layer := range e.cache {
		for g := range e.cache[layer].KV.Heads {
			if n, want := s.Sequence().Tokens(layer, g), map[bool]int{true: 60, false: 200}[m.Acts(layer)]; n != want {
				t.Errorf("layer %d keeps %d tokens, want %d", layer, n, want)
			}
		}
	}
	kept := acting * 200
	want := float64(kept) / float64(all*200+int(e.cache.StateBytes()))
	if got := s.KVUse().Droppable; math.Abs(got-want) > 1e-9 {
		t.Errorf("%g of a text's bytes may be dropped, want %g", got, want)
	}
	if windows := (policy.Model{Layers: cacheshape.Equal(1, 1, cacheshape.KV{Heads: 1, KeyDim: 4, ValueDim: 4, Window: 8})}); windows.Acts(0) {
		t.Error("policies act on a window")
	}
}

// TestLatentOutput: what values bring to the output is that of the values' projection and the layer's together.
func TestLatentOutput(t *testing.T) {
	t.Parallel()
	e := latentOnly(t, Options{Exact: true})
	a, l := &e.m.Layer[0].Attention, &e.m.Params.Layers[0]
	got, err := e.m.OutputOfValues(e.pool, 0)
	if err != nil {
		t.Fatal(err)
	}
	o, err := l.O.Values()
	if err != nil {
		t.Fatal(err)
	}
	value, rank, stored := a.Latent.Value, a.Latent.Rank, a.StoredValue()
	for _, at := range [][3]int{{0, 0, 0}, {5, 2, 7}, {63, 3, rank - 1}, {9, 1, rank}} {
		d, h, r := at[0], at[1], at[2]
		up, err := l.ValueUp[h].Values()
		if err != nil {
			t.Fatal(err)
		}
		want := float32(0)
		for j := 0; j < value && r < rank; j++ {
			want += o[(d*a.Heads+h)*value+j] * up[j*rank+r]
		}
		if x := got[(d*a.Heads+h)*stored+r]; math.Abs(float64(x-want)) > 1e-5 {
			t.Errorf("row %d, head %d, number %d: %g, want %g", d, h, r, x, want)
		}
	}
	for _, name := range []string{"criticalkv:budget=48", "kvzip_plus:ratio=0.5", "expected_attention:ratio=0.5", "finch:ratio=0.5", "keydiff:ratio=0.5"} {
		forced(t, latentOnly(t, Options{Policy: name}), fakes.IDs(150, 1), fakes.IDs(2, 2))
	}
	think := latentOnly(t, Options{Policy: "think"})
	if _, err := think.NewSession(think.Policy()); !errors.Is(err, policy.ErrModel) || !strings.Contains(err.Error(), "values too") {
		t.Errorf("think on latent keys: %v", err)
	}
}

// TestLatentRotation: a latent's rotation turns the numbers behind it alone.
func TestLatentRotation(t *testing.T) {
	t.Parallel()
	m := fakes.Mixed(5)
	r, rank := m.NewRotator(4, false), m.Layer[4].Latent.Rank
	x := make([]float32, m.Layer[4].KeyDim)
	for i := range x {
		x[i] = float32(i + 1)
	}
	y := slices.Clone(x)
	if r.Rotate(y, 7); !slices.Equal(y[:rank], x[:rank]) || slices.Equal(y[rank:], x[rank:]) {
		t.Errorf("rotated: %v", y)
	}
	r.Unrotate(y, 7)
	for i := range x {
		if math.Abs(float64(x[i]-y[i])) > 1e-4 {
			t.Errorf("back: %v", y)
		}
	}
}
