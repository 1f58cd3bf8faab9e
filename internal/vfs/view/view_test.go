package view

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestView reads a file as memory: what is there, what is written later past its end, and what was cut off.
func TestView(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const page = 64 << 10 // a multiple of every system's page
	if _, err := f.Write(bytes.Repeat([]byte{7}, page)); err != nil {
		t.Fatal(err)
	}
	v, err := Map(int(f.Fd()), 1<<30)
	if runtime.GOOS != "linux" {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
		t.Skip("no views on this system")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	sum := func(off int64, n int) (total int, err error) {
		err = v.Guard(func() error {
			for _, b := range v.At(off, n) {
				total += int(b)
			}
			return nil
		})
		return total, err
	}
	if got, err := sum(page-3, 3); got != 21 || err != nil {
		t.Errorf("what was there: %d, %v", got, err)
	}
	if _, err := sum(page, 3); !errors.Is(err, ErrFault) {
		t.Errorf("past the end: %v, want ErrFault", err)
	}
	if _, err := f.WriteAt([]byte{1, 2, 3}, page); err != nil {
		t.Fatal(err)
	}
	if got, err := sum(page, 3); got != 6 || err != nil {
		t.Errorf("written later: %d, %v", got, err)
	}
	if err := f.Truncate(page); err != nil {
		t.Fatal(err)
	}
	if _, err := sum(page, 3); !errors.Is(err, ErrFault) {
		t.Errorf("cut off: %v, want ErrFault", err)
	}
	if got, err := sum(0, 2); got != 14 || err != nil {
		t.Errorf("what is left: %d, %v", got, err)
	}
}

// TestShare: memory by two mappings is one; a file that could be cut, or is of another size, is no shared memory.
func TestShare(t *testing.T) {
	a, f, err := Share(64 << 10)
	if runtime.GOOS != "linux" {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
		t.Skip("no shared memory on this system")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer a.Close()
	b, err := Shared(f, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	copy(a.At(5000, 3), "abc")
	if got := string(b.At(5000, 3)); got != "abc" {
		t.Errorf("the other side sees %q", got)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Truncate(0); err == nil {
		t.Error("shared memory could be cut")
	}
	if _, err := Shared(f, 32<<10); err == nil {
		t.Error("half of it was taken for the whole")
	}
	plain, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(64 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := Shared(plain, 64<<10); err == nil {
		t.Error("a file on disk was taken for shared memory")
	}
}

// TestGuardLetsOtherPanicsPass: a bug stays a panic.
func TestGuardLetsOtherPanicsPass(t *testing.T) {
	defer func() {
		if r := recover(); r != "a bug" {
			t.Errorf("recovered %v", r)
		}
	}()
	_ = (&View{}).Guard(func() error { panic("a bug") })
}
