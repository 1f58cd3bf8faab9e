package simulate

import (
	"testing"

	"terrace/policy"
)

// TestCrossover: the product's choice changes sides once, where the drive's round trip is what its part saves; it moves with each rate as
// it should, and a host much faster than the drive is left late.
func TestCrossover(t *testing.T) {
	h := builtHill(t, "Llama-3.1-8B", 1, 16000)
	h.p = h.p.with("round_trip_s", 50e-6)
	at := func(fc, fs, bs, trip float64) int {
		h := h
		h.p = h.p.with("round_trip_s", trip)
		b := policy.Balance{Alpha: 0.2, FC: fc, FS: fs, BC: 25e9, BS: bs}
		n := h.crossover(b)
		if n > 1 && (h.weigh(b, float64(n-1)).Host() == h.weigh(b, float64(n)).Host() || h.weigh(b, float64(n)).Host() || h.weigh(b, 4*float64(n)).Host()) {
			t.Errorf("f_c=%v f_s=%v: %d tokens are no crossover", fc, fs, n)
		}
		return n
	}
	base := at(30e9, 76.8e9, 3.2e9, 50e-6)
	if base < 100 || base > 5000 {
		t.Errorf("from %d tokens on", base)
	}
	for name, n := range map[string]int{"a faster host": at(60e9, 76.8e9, 3.2e9, 50e-6), "a longer round trip": at(30e9, 76.8e9, 3.2e9, 100e-6)} {
		if n <= base {
			t.Errorf("%s: from %d tokens on, before %d", name, n, base)
		}
	}
	if n := at(120e9, 6.4e9, 3.2e9, 31.5e-6); n < 10*base {
		t.Errorf("keys on flash beside a host of 120 GB/s: from %d tokens on, want ten times as many as %d", n, base)
	}
}
