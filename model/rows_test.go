package model_test

import (
	"fmt"
	"math"
	"testing"

	"terrace/internal/kernels"
	"terrace/weights/hf/hftest"
)

// TestRowsDoNotDependOnThePass reads a prompt whole, in chunks and on pages of other sizes, on every CPU path, by models whose
// feed-forward width and vocabulary are no whole vectors: the logits are the same bit for bit.
func TestRowsDoNotDependOnThePass(t *testing.T) {
	defer func() {
		if err := kernels.Select(""); err != nil {
			t.Fatal(err)
		}
	}()
	type config = hftest.Config
	odd := config{"intermediate_size": 37, "vocab_size": 43}
	gemmaNorms := func(s hftest.Shapes) hftest.Shapes {
		for _, n := range []string{"pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"} {
			s.EachLayer("model.layers.%d.", 2, n, 16)
		}
		return s
	}
	opt, optShapes := hftest.OPT(16, false)
	for name, build := range map[string]func() (config, hftest.Shapes){
		"silu": func() (config, hftest.Shapes) { c := hftest.Llama().With(odd); return c, hftest.Decoder(c) },
		"gelu": func() (config, hftest.Shapes) {
			c := hftest.Llama().With(odd).With(config{"hidden_act": "gelu"})
			return c, hftest.Decoder(c)
		},
		"soft caps": func() (config, hftest.Shapes) {
			c := hftest.Llama().With(odd).With(config{"model_type": "gemma2", "tie_word_embeddings": nil, "sliding_window": 21, "attn_logit_softcapping": 5, "final_logit_softcapping": 9})
			return c, gemmaNorms(hftest.Decoder(c))
		},
		"no gate": func() (config, hftest.Shapes) { return opt, optShapes },
	} {
		c, shapes := build()
		dir := hftest.Folder(t, c, shapes)
		for _, path := range kernels.Available() {
			for phase, phaseName := range map[kernels.Phase]string{kernels.Prefill: "prefill", kernels.Exact: "exact"} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, path, phaseName), func(t *testing.T) {
					if err := kernels.Select(path); err != nil {
						t.Fatal(err)
					}
					read := func(page int, chunks ...int) (out [][]float32) {
						r := newRunner(t, dir)
						r.phase = phase
						r.pages(page)
						ids := make([]int, 60)
						for i := range ids {
							ids[i] = i * 7 % r.m.Vocab
						}
						for at, i := 0, 0; at < len(ids); i++ {
							n := min(chunks[i%len(chunks)], len(ids)-at)
							out = append(out, r.pass(ids[at:at+n], len(ids))...)
							at += n
						}
						return out
					}
					want := read(16, 60)
					for _, c := range []struct {
						page   int
						chunks []int
					}{{16, []int{1}}, {16, []int{3, 1, 17}}, {32, []int{60}}, {48, []int{20}}, {64, []int{31, 2}}} {
						for p, row := range read(c.page, c.chunks...) {
							for i, x := range row {
								if math.Float32bits(x) != math.Float32bits(want[p][i]) {
									t.Fatalf("pages of %d tokens, chunks of %v: logit %d after token %d is %v, read whole it is %v", c.page, c.chunks, i, p, x, want[p][i])
								}
							}
						}
					}
				})
			}
		}
	}
}
