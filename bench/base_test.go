package bench

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestBase: rows are read back in order; another vocabulary, other chunks and a file that ends are refused; what is not kept is not there.
func TestBase(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "base")
	for _, keep := range []bool{false, true} {
		w, err := CreateBase(path, 3, 16)
		if err != nil {
			t.Fatal(err)
		}
		w.Add([]float64{-1, -2, -3})
		w.Add([]float64{-4, -5, -0.1})
		if err := w.Close(keep); err != nil {
			t.Fatal(err)
		}
		if files, err := os.ReadDir(dir); err != nil || (len(files) == 1) != keep {
			t.Errorf("keep %v: %v, %v", keep, files, err)
		}
	}
	r, err := OpenBase(path, 3, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, want := range [][]float64{{-1, -2, -3}, {-4, -5, float64(float32(-0.1))}} {
		got, err := r.Next()
		if err != nil || len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
			t.Errorf("%v %v, want %v", got, err, want)
		}
	}
	if _, err := r.Next(); !errors.Is(err, ErrBase) {
		t.Errorf("behind the end: %v", err)
	}
	for _, c := range [][2]int{{4, 16}, {3, 17}} {
		if _, err := OpenBase(path, c[0], c[1]); !errors.Is(err, ErrBase) {
			t.Errorf("for %v: %v", c, err)
		}
	}
	if _, err := OpenBase(filepath.Join(dir, "none"), 3, 16); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
