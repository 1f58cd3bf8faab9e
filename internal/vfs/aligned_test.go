package vfs

import "testing"

func TestAlignedBytes(t *testing.T) {
	for _, n := range []int{0, 1, 4096, 4097, 1 << 20} {
		b := AlignedBytes(n)
		if len(b) != n || cap(b) < n || cap(b)%4096 != 0 {
			t.Errorf("AlignedBytes(%d): len %d cap %d", n, len(b), cap(b))
		}
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("byte %d is not zero", i)
			}
			b[i] = 1
		}
		FreeAligned(b)
	}
	FreeAligned(nil)
}
