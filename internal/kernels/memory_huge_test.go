package kernels

import (
	"sync"
	"testing"
)

// TestHuge: what several goroutines take is zero, apart and aligned, of any size; it can be taken again after Free.
func TestHuge(t *testing.T) {
	h := NewHuge()
	for range 2 {
		var all sync.WaitGroup
		blocks := make([][]byte, 40)
		for i := range blocks {
			all.Go(func() {
				b := h.Take(1000 + i*i*2000)
				for j := range b {
					if b[j] != 0 {
						t.Errorf("block %d is not zero", i)
						break
					}
					b[j] = byte(i + 1)
				}
				blocks[i] = b
			})
		}
		all.Wait()
		for i, b := range blocks {
			if len(b) != 1000+i*i*2000 || cap(b) != len(b) {
				t.Fatalf("block %d: %d bytes of %d", i, len(b), cap(b))
			}
			for _, x := range b {
				if x != byte(i+1) {
					t.Fatalf("block %d was overwritten", i)
				}
			}
		}
		h.Free()
	}
	(*Huge)(nil).Free()
}
