package engine

import (
	"os"
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
	for b.Loop() {
		if err := s.Decode(100); err != nil {
			b.Fatal(err)
		}
	}
}
