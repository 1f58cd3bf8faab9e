package convert

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
)

// TestPowerLoss: whenever the machine goes off while a model is written, under its name is what was there before, and the same command
// ends with the same bytes afterwards, whatever is left beside it.
func TestPowerLoss(t *testing.T) {
	src, dir := open(t, tinyFile), t.TempDir()
	dst := filepath.Join(dir, "out.gguf")
	if err := Quantize(t.Context(), src, dst, Options{Type: quant.Q8_0}); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(dst)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dst, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	var images []string // the folder as it is after each step
	err = Quantize(t.Context(), src, dst, Options{Type: quant.Q8_0, Progress: func(int64, int64) {
		image := t.TempDir()
		images = append(images, image)
		if err := os.CopyFS(image, os.DirFS(dir)); err != nil {
			t.Error(err)
		}
	}})
	if err != nil || len(images) < 3 {
		t.Fatalf("%d steps, %v", len(images), err)
	}
	for i, image := range images {
		dst := filepath.Join(image, "out.gguf")
		if b, err := os.ReadFile(dst); err != nil || string(b) != "before" {
			t.Errorf("step %d of %d: the file holds %d bytes, want those of before: %v", i+1, len(images), len(b), err)
		}
		entries, err := os.ReadDir(image)
		if err != nil || len(entries) != 2 {
			t.Fatalf("step %d: %v, %v", i+1, entries, err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") { // nothing of it was synced
				if err := os.Truncate(filepath.Join(image, e.Name()), int64(i*7)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := Quantize(t.Context(), src, dst, Options{Type: quant.Q8_0}); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(dst); err != nil || !bytes.Equal(b, want) {
			t.Errorf("step %d: other bytes after the loss, %v", i+1, err)
		}
	}
}
