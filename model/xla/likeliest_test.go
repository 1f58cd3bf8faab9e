package xla

import (
	"errors"
	"math"
	"slices"
	"testing"

	"terrace/model"
)

// TestLikeliest: the first of equals wins, padded rows do not count, and what is not finite is said of its own row.
func TestLikeliest(t *testing.T) {
	b := testBackend(t, headsConfig)
	if _, _, err := b.Argmax(); !errors.Is(err, model.ErrUnsupported) {
		t.Errorf("before any logits: %v", err)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	o, err := upload(b.device, "logits", -1, []float32{
		-3, 7, 7, 0, -1,
		nan, 1, 2, 3, 2,
		-4, -2, -3, -2, -9,
		0, 1, inf, 3, 4,
		1, 2, 3, 4, 5,
		0, 0, 0, 0, 9,
		0, 0, 0, 0, 9,
		0, 0, 0, 0, 9,
	}, 8, 5)
	if err != nil {
		t.Fatal(err)
	}
	b.logits.put(b.device, o, 5)
	before := b.device.counts.DownloadBytes
	ids, finite, err := b.Argmax()
	if err != nil || len(ids) != 5 {
		t.Fatal(ids, err)
	}
	ids[1], ids[3] = -1, -1 // of no matter
	if !slices.Equal(ids, []int32{1, -1, 1, -1, 4}) || !slices.Equal(finite, []bool{true, false, true, false, true}) {
		t.Errorf("ids %v, finite %v", ids, finite)
	}
	if down := b.device.counts.DownloadBytes - before; down != 8*8 {
		t.Errorf("%d bytes came down, want 64", down)
	}
}
