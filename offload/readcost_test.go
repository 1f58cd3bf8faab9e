package offload

import (
	"math"
	"testing"
)

// TestReadCost: a device whose reads take 15 µs and a nanosecond a byte is recognised, with a little noise too; what says nothing gives 0.
func TestReadCost(t *testing.T) {
	rates := func(operation, perByte float64, noise ...float64) *StorageRates {
		at := func(b float64) float64 { return 1 / (operation + b*perByte) }
		r := &StorageRates{Random: map[string]float64{"4": at(4096), "12": at(12288), "16": at(16384), "64": at(65536)}, StreamRead: 262144 * at(262144), Submit: 5e-6}
		for i, kib := range []string{"4", "12", "16", "64"} {
			if i < len(noise) {
				r.Random[kib] *= noise[i]
			}
		}
		return r
	}
	near := func(got, want, by float64) bool { return math.Abs(got-want) <= by*want }
	if op, each := rates(15e-6, 1e-9).ReadCost(); !near(op, 15e-6, 1e-6) || !near(each, 1e-9, 1e-6) {
		t.Errorf("%g s an operation, %g a byte", op, each)
	}
	if gap := rates(15e-6, 1e-9).GapBytes(); gap < 24999 || gap > 25000 {
		t.Errorf("%d bytes cost what an operation does, want 25000", gap)
	}
	if gap := float64(rates(15e-6, 1e-9, 1.05, 0.95, 1.05, 0.95).GapBytes()); !near(gap, 25000, 0.2) {
		t.Errorf("with noise: %v bytes", gap)
	}
	for name, r := range map[string]*StorageRates{"nothing": {}, "one figure": {Random: map[string]float64{"4": 1000}}, "words": {Random: map[string]float64{"x": 5, "4": 0}}} {
		if gap := r.GapBytes(); gap != 0 {
			t.Errorf("%s: %d bytes", name, gap)
		}
	}
	if gap := rates(1e-3, 1e-12).GapBytes(); gap != mostGapBytes {
		t.Errorf("a device that only counts operations: %d bytes", gap)
	}
	if gap := rates(0, 1e-9).GapBytes(); gap < 9999 || gap > 10001 {
		t.Errorf("a device that only counts bytes: %d bytes, want those of two handovers", gap)
	}
	old := rates(15e-6, 1e-9)
	if old.Submit = 0; old.GapBytes() != 0 {
		t.Errorf("of an older profile: %d bytes", old.GapBytes())
	}
}

// TestStorageOf: a directory's own figures, else those of the nearest one around it, never a neighbour's.
func TestStorageOf(t *testing.T) {
	p := Profile{Storage: []StorageRates{{Dir: "/data"}, {Dir: "/data/kv"}, {Dir: "/data/kv-2"}}}
	for dir, want := range map[string]string{"/data/kv": "/data/kv", "/data/kv/bench-1": "/data/kv", "/data/kv-3": "/data", "/data/kv-2/": "/data/kv-2", "/data": "/data", "/": "", "/other": "", "/data/../x": ""} {
		got := ""
		if s := p.StorageOf(dir); s != nil {
			got = s.Dir
		}
		if got != want {
			t.Errorf("%s: figures of %q, want %q", dir, got, want)
		}
	}
}

// TestHandCost: what handing reads over takes is the line through what was measured by size.
func TestHandCost(t *testing.T) {
	at := func(kib float64) float64 { return 6e-6 + kib*1024*1e-10 }
	r := &StorageRates{StreamRead: 1e9, Latency: 2e-4, SubmitBy: map[string]float64{"4": at(4), "12": at(12), "64": at(64)}, SubmitLarge: at(256), Random: map[string]float64{"4": 1e4, "12": 1e4, "64": 1e4}}
	if each, perByte := r.HandCost(); math.Abs(each/6e-6-1) > 1e-9 || math.Abs(perByte/1e-10-1) > 1e-9 {
		t.Errorf("%g s and %g a byte", each, perByte)
	}
	if each, perByte := (&StorageRates{}).HandCost(); each != 0 || perByte != 0 {
		t.Errorf("of nothing: %g and %g", each, perByte)
	}
}
