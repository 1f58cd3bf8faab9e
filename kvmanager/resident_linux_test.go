package kvmanager

import (
	"bytes"
	"errors"
	"os"
	"runtime/debug"
	"strconv"
	"testing"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
)

// residentBytes is the memory of this process that the system holds for it, without what the Go runtime keeps of heap
// that nothing refers to.
func residentBytes(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	n, err := strconv.ParseInt(string(bytes.Fields(b)[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n * int64(os.Getpagesize())
}

// TestDroppedPagesAreNotResident fills 8,000 tokens of 8 layers and 3 heads (48 MiB), keeps every fourth in each head and
// measures what the process still holds of it: at most 0.30 of it, as a ratio of 0.75 removed promises.
func TestDroppedPagesAreNotResident(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector keeps memory of its own for every page")
	}
	o := Options{Layers: cacheshape.Equal(8, 3, cacheshape.KV{Heads: 3, KeyDim: 64, ValueDim: 64}), Layout: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 64, ValueDim: 64, Tokens: 16}}
	m := open(t, o)
	const n, step = 8000, 400
	k, v := make([]float32, step*3*64), make([]float32, step*3*64)
	warm := m.NewSequence() // the code that runs becomes resident too: once, before the reading
	if err := errors.Join(warm.Append(0, k[:5*3*64], v[:5*3*64], []int32{0, 1, 2, 3, 4}), warm.Keep(0, 0, []int{1, 3})); err != nil {
		t.Fatal(err)
	}
	warm.Free()
	m.Release()
	s := m.NewSequence()
	defer s.Free()
	before := residentBytes(t)
	for at := 0; at < n; at += step {
		pos := make([]int32, step)
		for i := range pos {
			pos[i] = int32(at + i)
		}
		for layer := range o.Layers {
			if err := s.Append(layer, k, v, pos); err != nil {
				t.Fatal(err)
			}
		}
	}
	full := residentBytes(t) - before
	if full < s.Bytes()*9/10 {
		t.Fatalf("%d bytes resident of %d written", full, s.Bytes())
	}
	var keep []int
	for i := 1; i < n; i += 4 {
		keep = append(keep, i)
	}
	for layer := range o.Layers {
		for g := range o.Layers[0].KV.Heads {
			if err := s.Keep(layer, g, keep); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.Release()
	left := residentBytes(t) - before
	t.Logf("%d MiB resident, %d MiB after three quarters were dropped (%.3f)", full>>20, left>>20, float64(left)/float64(full))
	if float64(left) > 0.30*float64(full) {
		t.Errorf("%d bytes resident of %d, want at most 0.30 of them", left, full)
	}
}
