//go:build unix

package kernels

import (
	"runtime"
	"testing"
)

// TestPackedMemory: blocks are zero, apart, aligned, and go away with the last owner of their arena.
func TestPackedMemory(t *testing.T) {
	var owners []*Matrix
	var blocks [][]byte
	for i := range 40 {
		owners = append(owners, &Matrix{rows: i})
		blocks = append(blocks, packedMemory(owners[i], 1000+i*60000))
		for _, v := range []int{0, len(blocks[i]) / 2, len(blocks[i]) - 1} {
			if blocks[i][v] != 0 {
				t.Fatalf("block %d is not zero", i)
			}
		}
		for k := range blocks[i] {
			blocks[i][k] = byte(i)
		}
	}
	for i, b := range blocks {
		if b[0] != byte(i) || b[len(b)-1] != byte(i) || b[len(b)/2] != byte(i) {
			t.Fatalf("block %d was overwritten", i)
		}
	}
	a, err := newArena(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	a.live = 2
	a.drop()
	if a.live != 1 {
		t.Fatal("drop does not count")
	}
	a.drop()
	runtime.KeepAlive(owners)
}

// collect returns when the collector has run, and the cleanup of an object that it found.
func collect() {
	cleaned := make(chan struct{})
	runtime.AddCleanup(&struct{ p *int }{new(int)}, func(c chan struct{}) { close(c) }, cleaned)
	for {
		runtime.GC()
		select {
		case <-cleaned:
			return
		default:
			runtime.Gosched()
		}
	}
}

// TestPackedMemoryIsCollected: matrices that nobody holds give their arena back.
func TestPackedMemoryIsCollected(t *testing.T) {
	m := &Matrix{}
	packedMemory(m, arenaBytes) // an arena of its own, or the current one
	arenas.Lock()
	a := arenas.current
	arenas.Unlock()
	if a == nil {
		t.Skip("mapping is refused here")
	}
	live := func() int {
		arenas.Lock()
		defer arenas.Unlock()
		return a.live
	}
	before := live()
	n := &Matrix{}
	if len(a.free) < 64 {
		t.Skip("no room left in the current arena")
	}
	packedMemory(n, 64)
	if live() != before+1 {
		t.Skip("the block went to another arena")
	}
	runtime.KeepAlive(n)
	for range 100 {
		collect()
		if live() <= before {
			return
		}
	}
	t.Fatal("the block's owner was collected, its arena still counts it")
}
