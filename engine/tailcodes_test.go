package engine

import (
	"math"
	"testing"

	"terrace/engine/fakes"
)

// TestTailCodes: with codes that are nearly exact the tokens that are not read count as if they were, and logits are those of full
// attention; without them they are not. A budget that the layer shares is the heads' sum.
func TestTailCodes(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(150, 5), fakes.IDs(6, 6)
	full := forced(t, small(t, Options{Exact: true}), prompt, next)
	size := fakes.Worst(full, zeros(full))
	off := func(spec string) float32 {
		return fakes.Worst(full, forced(t, small(t, Options{Exact: true, Policy: spec}), prompt, next)) / size
	}
	const fine = ",part=1,value_part=1,bits=7,iters=4"
	codes, head, none := off("tailcodes:budget=24,share=layer"+fine), off("tailcodes:budget=24"+fine), off("tailcodes:budget=24,tail=none"+fine)
	coarse := off("tailcodes:budget=24,part=4,bits=2")
	t.Logf("of the largest logit: %.1e, by head %.1e, without a tail %.1e, coarse codes %.1e", codes, head, none, coarse)
	if codes > 2e-2 || head > 2e-2 || none < 10*head || coarse < 10*head {
		t.Errorf("logits are off by %g (codes), %g (by head), %g (no tail), %g (coarse codes) of the largest", codes, head, none, coarse)
	}
	read := func(spec string) float64 {
		e := small(t, Options{Policy: spec})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Decode(7); err != nil {
			t.Fatal(err)
		}
		return s.KVUse().TokensRead
	}
	for _, spec := range []string{"tailcodes:budget=40", "tailcodes:budget=40,share=layer"} {
		if n := read(spec); math.Abs(n-40) > 1e-9 {
			t.Errorf("%s reads %g tokens a head, want 40", spec, n)
		}
	}
}
