package engine

import (
	"math"
	"path/filepath"
	"testing"
)

// TestCenters: the centers of the first layer are those of its projections of the normed embeddings, whatever the chunks and the positions.
func TestCenters(t *testing.T) {
	t.Parallel()
	m := openFile(t, filepath.Join("testdata", "kvpress", "model"))
	ids := make([]int, 50)
	for i := range ids {
		ids[i] = (37*i + 5) % 221
	}
	heads, dim := m.Layer[0].Heads, m.Layer[0].KeyDim
	re, im, length := make([]float64, heads*dim/2), make([]float64, heads*dim/2), make([]float64, heads*dim/2)
	norm, err := m.Params.Layers[0].AttnNorm.W.Values()
	if err != nil {
		t.Fatal(err)
	}
	row, w := make([]float32, m.Hidden), make([]float32, m.Hidden)
	for _, id := range ids {
		if err := m.Params.Embed.Row(row, id); err != nil {
			t.Fatal(err)
		}
		squares := 0.0
		for _, v := range row {
			squares += float64(v) * float64(v) / float64(m.Hidden)
		}
		q := make([]float64, heads*dim)
		for i := range q {
			if err := m.Params.Layers[0].Q.Row(w, i); err != nil {
				t.Fatal(err)
			}
			for j, v := range row {
				q[i] += float64(v) / math.Sqrt(squares+1e-5) * float64(norm[j]) * float64(w[j])
			}
		}
		for h := range heads {
			for f := range dim / 2 {
				a, b := q[h*dim+f], q[h*dim+f+dim/2]
				if m.Ropes[0].Interlaced {
					a, b = q[h*dim+2*f], q[h*dim+2*f+1]
				}
				at := h*dim/2 + f
				re[at], im[at], length[at] = re[at]+a, im[at]+b, length[at]+math.Hypot(a, b)
			}
		}
	}
	for _, chunk := range []int{16, 512} {
		e := openOn(t, m, Options{Exact: true, Threads: 1, ChunkTokens: chunk})
		got, err := e.Centers(t.Context(), ids)
		if err != nil || len(got) != 3 || got[0].Count != len(ids) || got[2] == nil {
			t.Fatalf("%v, %d layers", err, len(got))
		}
		for i := range re {
			for what, pair := range map[string][2]float64{"real": {got[0].Real[i], re[i]}, "imag": {got[0].Imag[i], im[i]}, "length": {got[0].Length[i], length[i]}} {
				if math.Abs(pair[0]-pair[1]) > 1e-3 {
					t.Fatalf("chunks of %d, %s %d: %g, want %g", chunk, what, i, pair[0], pair[1])
				}
			}
		}
	}
}
