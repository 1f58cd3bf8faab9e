package engine

import (
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
)

// TestTokensAreWrittenLate: generated tokens wait in host memory until 16 fill a block, which goes down whole and once, and the device
// moves no byte beside (HILOS' delayed write-back).
func TestTokensAreWrittenLate(t *testing.T) {
	t.Parallel()
	const record = 2 * 16 * (32 + 32) * 2 // a block of two KV heads of 32 f16 numbers
	o := Options{Threads: 1, ChunkTokens: 32, Tiers: []tier.Tier{{Kind: tier.Host, CapacityBytes: 300 << 10}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 16 << 20}}}
	e := small(t, o)
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), fakes.IDs(400, 1), PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	settled := func() int64 {
		t.Helper()
		if err := e.kv.Settle(); err != nil {
			t.Fatal(err)
		}
		return e.tiers.store.Stats().WrittenBytes
	}
	before, blocks := settled(), 0
	for i := range 100 { // tokens 401 to 500
		if err := s.Decode(i); err != nil {
			t.Fatal(err)
		}
		now := settled()
		fresh := now - before
		switch before = now; {
		case (401+i)%16 == 0: // in all three layers
			if blocks++; fresh < 3*record {
				t.Errorf("token %d fills a block, and %d bytes were written", 401+i, fresh)
			}
		case fresh%record != 0 || fresh >= 3*record: // a block that stayed until now
			t.Errorf("token %d fills no block, and %d bytes were written", 401+i, fresh)
		}
	}
	st := e.tiers.store.Stats()
	if blocks != 6 || st.DeviceWriteBytes != st.WrittenBytes || st.WrittenBytes > 3*(500/16)*record {
		t.Errorf("%d blocks, %d bytes written, %d by the device: want no block twice and no byte beside", blocks, st.WrittenBytes, st.DeviceWriteBytes)
	}
}
