package main

import (
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
