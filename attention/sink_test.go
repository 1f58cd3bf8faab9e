package attention

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSoftmaxWithSink: a sink takes its part of each softmax and gives nothing for it.
func TestSoftmaxWithSink(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		p := Params{Sinks: []float32{0, float32(rng.NormFloat64() * 4)}}
		row := make([]float32, 1+rng.IntN(40))
		sum := math.Exp(float64(p.Sinks[1]))
		for i := range row {
			row[i] = float32(rng.NormFloat64() * 3)
			sum += math.Exp(float64(row[i]))
		}
		want := make([]float64, len(row))
		for i, x := range row {
			want[i] = math.Exp(float64(x)) / sum
		}
		p.Softmax(row, 1)
		for i, x := range row {
			if math.Abs(float64(x)-want[i]) > 1e-6 {
				t.Fatalf("weight %d is %g, want %g", i, x, want[i])
			}
		}
	}
}
