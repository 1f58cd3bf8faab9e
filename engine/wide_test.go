package engine

import (
	"errors"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/model"
)

// TestWideShares: layers that read an earlier layer's keys take no byte of a token, and rows of a pruned prompt keep their tokens.
func TestWideShares(t *testing.T) {
	t.Parallel()
	e := wide(t, Options{})
	perNumber := 2 // f16
	if got, want := e.KVBytesPerToken(), perNumber*(3*2*2*32+2*64); got != want {
		t.Errorf("%d bytes a token, want %d of the four layers that keep some", got, want)
	}
	for layer, keeps := range []bool{true, true, true, true, false, false} {
		if e.Cache().Keeps(layer) != keeps {
			t.Errorf("layer %d keeps keys and values: %v", layer, !keeps)
		}
	}
}

// TestWideByLayer: prompts that pass layer by layer have rows that carry their tokens: whole they give what chunks give, pruned the same in blocks of any size.
func TestWideByLayer(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(200, 1), fakes.IDs(6, 2)
	for name, open := range map[string]func(t testing.TB, o Options) *Engine{"wide": wide, "streams": streamed} {
		full := forced(t, open(t, Options{}), prompt, next)
		for _, policy := range []string{"lazyllm:layers=3,keep=100%", "sliminfer:layers=3,keep=200"} {
			if d := fakes.Worst(full, forced(t, open(t, Options{Policy: policy, ChunkTokens: 48}), prompt, next)); d != 0 {
				t.Errorf("%s, %s: logits differ by %g", name, policy, d)
			}
		}
		pruned := Options{Policy: "lazyllm:layers=3,keep=40%", ChunkTokens: 200}
		want := forced(t, open(t, pruned), prompt, next)
		pruned.ChunkTokens = 16
		if d := fakes.Worst(want, forced(t, open(t, pruned), prompt, next)); d != 0 {
			t.Errorf("%s, pruned: logits differ by %g", name, d)
		}
		if fakes.Worst(want, full) == 0 {
			t.Errorf("%s: nothing was pruned", name)
		}
	}
}

// TestWideRefused: what such models cannot do is refused by name.
func TestWideRefused(t *testing.T) {
	t.Parallel()
	for want, streams := range map[string]bool{"inputs of each layer": false, "several streams": true} {
		if _, err := Open(fakes.Wide(3, streams), Options{Backend: "gorgonia", Threads: 1}); !errors.Is(err, model.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
