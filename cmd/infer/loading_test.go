package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestCollectLess: the collector waits longer until the model is open, and never longer where memory is short or it is off.
func TestCollectLess(t *testing.T) {
	now := func() int {
		percent := debug.SetGCPercent(100)
		debug.SetGCPercent(percent)
		return percent
	}
	defer debug.SetGCPercent(now())
	for before, want := range map[int]int{tierGCPercent: tierGCPercent, 100: loadGCPercent, 200: loadGCPercent, 900: 900, -1: -1} {
		debug.SetGCPercent(before)
		end := collectLess()
		during := now()
		if end(); during != want || now() != before {
			t.Errorf("at %d: %d while a model is opened, want %d; %d after", before, during, want, now())
		}
	}
}

// TestMakeRoom: the runtime gets a processor beside those that compute for an SSD's ring, two for a drive's connection, none for
// memory alone, and is never given fewer than it has.
func TestMakeRoom(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	was := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(was)
	for _, c := range []struct {
		tiers []string
		want  int
	}{
		{nil, 2},
		{[]string{"host=1MiB"}, 2},
		{[]string{"host=1MiB", "ssd=/kv,1GiB"}, 3},
		{[]string{"host=1MiB", "csd=unix:/s"}, 4},
	} {
		for _, have := range []int{2, 7} {
			runtime.GOMAXPROCS(have)
			if _, err := makeRoom(c.tiers, 2); err != nil {
				t.Fatal(err)
			}
			if got, want := runtime.GOMAXPROCS(0), max(have, c.want); got != want {
				t.Errorf("%v for 2 threads: %d processors of %d before, want %d", c.tiers, got, have, want)
			}
		}
	}
}
