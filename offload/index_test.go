package offload

import (
	"context"
	"math/rand/v2"
	"testing"

	"terrace/internal/vfs"
)

// TestIndexBytes: a store's index is never larger than IndexBytes says, in whatever order groups are written, and not much smaller
// when it is long.
func TestIndexBytes(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		shape := oddShape()
		s := openSSD(t, shape, SSDOptions{Dir: "/d", FS: vfs.NewMem(64 << 20), CapacityBytes: 24 << 20, ExtentGroups: 1 + rng.IntN(8)})
		groups := 1 + rng.IntN(300)
		data := make([]byte, shape.RecordBytes(0))
		for _, i := range rng.Perm(groups * len(shape.Layers)) {
			if err := s.Write(context.Background(), []Record{{Key: Key{Seq: 1, Layer: int32(i % len(shape.Layers)), Group: int32(i / len(shape.Layers))}, Data: data}}); err != nil {
				t.Fatal(err)
			}
		}
		got, most := s.seqs[1].indexBytes(), s.IndexBytes(groups)
		if got > most || groups > 100 && got < most/2 {
			t.Errorf("seed %d, %d groups: the index has %d bytes, at most %d were said", seed, groups, got, most)
		}
	}
	if s := openSSD(t, oddShape(), SSDOptions{Dir: "/e", FS: vfs.NewMem(8 << 20), CapacityBytes: 4 << 20}); s.IndexBytes(0) != 0 {
		t.Error("no group, but an index")
	}
}
