package model_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"terrace/model"
)

// families are the folders of the goldens, so that a new family is tested once its golden is there.
func families(t *testing.T) (root string, names []string) {
	root = shared(t, "data", "golden", "families")
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) < 49 {
		t.Errorf("%d families, want 49 or more", len(names))
	}
	return root, names
}

// indexed reports whether a model attends to what an indexer chooses, which package engine compares.
func indexed(m *model.Model) bool {
	return slices.ContainsFunc(m.Layer, func(l model.LayerConfig) bool { return l.Index != nil })
}

// TestFamilies compares each family, as a folder and as a GGUF file, with Hugging Face's float32 logits of two prompts and its greedy
// continuation of the first, which is read in one pass and in two.
func TestFamilies(t *testing.T) {
	root, names := families(t)
	for _, name := range names {
		dir := filepath.Join(root, name)
		g := readGolden(t, filepath.Join(dir, "golden.safetensors"))
		for _, path := range []string{dir, filepath.Join(dir, "model.gguf")} {
			if _, err := os.Stat(path); err != nil {
				continue // no GGUF form
			}
			t.Run(name+"/"+filepath.Base(path), func(t *testing.T) {
				r := newRunner(t, path)
				if indexed(r.m) {
					return
				}
				ids, want := g.ints("input_ids"), g.rows("logits", r.m.Vocab)
				got := r.pass(ids, len(ids))
				if off := worst(got, want); off > 2e-4 {
					t.Errorf("max |Δlogit| is %.2g of the largest logit, want at most 2e-4", off)
				}
				greedy := g.ints("greedy_ids")
				if have := r.greedy(got[len(got)-1], len(greedy)); !slices.Equal(have, greedy) {
					t.Errorf("greedy ids %v, want %v", have, greedy)
				}
				r = newRunner(t, path)
				chunked := append(r.pass(ids[:17], len(ids)), r.pass(ids[17:], len(ids))...)
				if off := worst(chunked, want); off > 2e-4 {
					t.Errorf("in two chunks: max |Δlogit| is %.2g of the largest logit, want at most 2e-4", off)
				}
				r = newRunner(t, path)
				second := g.ints("input_ids_2")
				if off := worst(r.pass(second, len(second)), g.rows("logits_2", r.m.Vocab)); off > 2e-4 {
					t.Errorf("second prompt: max |Δlogit| is %.2g of the largest logit, want at most 2e-4", off)
				}
			})
		}
	}
}
