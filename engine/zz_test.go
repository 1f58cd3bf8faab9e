package engine

import (
	"os"
	"runtime/pprof"
	"testing"
)

func BenchmarkZZ(b *testing.B) {
	e := openModel(b, "/tmp/models/smollm2.gguf", Options{Policy: os.Getenv("SPEC"), Context: 1 << 15})
	s, err := e.NewSession()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	if err := s.Prefill(b.Context(), someIDs(8000, 1), PrefillHooks{}); err != nil {
		b.Fatal(err)
	}
	if os.Getenv("PROF") != "" {
		f, _ := os.Create(os.Getenv("PROF"))
		pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	for b.Loop() {
		if err := s.Decode(100); err != nil {
			b.Fatal(err)
		}
	}
}
