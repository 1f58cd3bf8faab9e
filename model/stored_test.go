package model_test

import (
	"math"
	"testing"

	"terrace/internal/kernels"
	"terrace/weights/hf/hftest"
)

// TestStoredLogits compares quantised checkpoints with the F32 models that they stand for, on every CPU path: the logits of the exact
// phase are equal bit for bit where the values are, and within 1e-3 of the largest logit where they are rounded to float16. With activations
// of 8 bits they stay within 3 %.
func TestStoredLogits(t *testing.T) {
	defer func() {
		if err := kernels.Select(""); err != nil {
			t.Fatal(err)
		}
	}()
	for name, form := range hftest.Forms(t) {
		s := form.Write(t)
		stored, plain := s.Folder(t, form.Config), s.Plain(t)
		for _, path := range kernels.Available() {
			t.Run(name+"/"+path, func(t *testing.T) {
				if err := kernels.Select(path); err != nil {
					t.Fatal(err)
				}
				ids := []int{1, 5, 39, 0, 17, 17, 2, 30, 11}
				read := func(dir string, phase kernels.Phase) [][]float32 {
					r := newRunner(t, dir)
					r.phase = phase
					return r.pass(ids, len(ids))
				}
				once := newRunner(t, stored)
				once.phase = kernels.Exact
				once.pass(ids, len(ids))
				if m, _, err := once.m.Params.Layers[0].Down.Matrix(); err != nil || m.HasRows() != (path == "purego") {
					t.Errorf("beside the tiles the computed bytes are kept: %v (%v)", m.HasRows(), err)
				}
				want := read(plain, kernels.Exact)
				exact := read(stored, kernels.Exact)
				for i, row := range exact {
					for j, x := range row {
						if form.Limit == 0 && math.Float32bits(x) != math.Float32bits(want[i][j]) {
							t.Fatalf("logit %d of row %d is %v, want %v", j, i, x, want[i][j])
						}
					}
				}
				for phase, limit := range map[kernels.Phase]float64{kernels.Exact: 1e-3, kernels.Prefill: 0.03, kernels.Decode: 0.03} {
					if off := worst(read(stored, phase), want); off > limit {
						t.Errorf("phase %d: max |Δlogit| is %.2g of the largest, want at most %g", phase, off, limit)
					}
				}
			})
		}
	}
}
