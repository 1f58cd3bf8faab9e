package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"syscall"
	"testing"
)

// struck makes a file of 16 KiB, in which every byte says which 4 KiB block it is in, and then does op with a fault.
func struck(t *testing.T, kind FaultKind, op func(f File)) (below File, log []string) {
	t.Helper()
	m := NewMem(1 << 20)
	below, err := m.OpenFile("f", OpenOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if _, err := below.WriteAt(bytes.Repeat([]byte{byte(i + 1)}, 4096), int64(i)*4096); err != nil {
			t.Fatal(err)
		}
	}
	y := &Faulty{m, &Faults{Seed: 1, Nth: 2, Kind: kind, Log: func(s string) { log = append(log, s) }}}
	f, err := y.OpenFile("f", OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	op(f)
	if ops, n := y.Faults.Ops(); ops != 2 || n != 1 {
		t.Errorf("%d operations, %d struck", ops, n)
	}
	return below, log
}

func TestReadFaults(t *testing.T) {
	read := func(f File) ([]byte, int, error) {
		b := make([]byte, 4096)
		n, err := f.ReadVecAt([][]byte{b[:100], b[100:]}, 8192)
		return b, n, err
	}
	struck(t, EIO, func(f File) {
		if _, _, err := read(f); !errors.Is(err, syscall.EIO) {
			t.Errorf("EIO: %v", err)
		}
	})
	struck(t, Short, func(f File) {
		if _, n, err := read(f); !errors.Is(err, io.EOF) || n >= 100 {
			t.Errorf("short: %d bytes, %v", n, err)
		}
	})
	struck(t, Misplace, func(f File) {
		if b, _, err := read(f); err != nil || b[0] != 2 {
			t.Errorf("misplaced: block %d, %v", b[0], err)
		}
	})
	_, log := struck(t, Flip, func(f File) {
		b, _, err := read(f)
		wrong := 0
		for _, x := range b {
			wrong += bits.OnesCount8(x ^ 3)
		}
		if err != nil || wrong != 1 {
			t.Errorf("flip: %d bits, %v", wrong, err)
		}
	})
	if want := "[open f 0 at 0 read f 4096 at 8192: flip]"; fmt.Sprint(log) != want {
		t.Errorf("log %v, want %v", log, want)
	}
}

func TestWriteFaults(t *testing.T) {
	data := bytes.Repeat([]byte{9}, 4096)
	for kind, want := range map[FaultKind]error{EIO: syscall.EIO, Torn: syscall.EIO, PowerOff: syscall.EIO, ENOSPC: ErrNoSpace, Short: io.ErrShortWrite, Lose: nil, Misplace: nil, Flip: nil} {
		below, _ := struck(t, kind, func(f File) {
			if _, err := f.WriteAt(data, 8192); !errors.Is(err, want) {
				t.Errorf("fault %d: %v, want %v", kind, err, want)
			}
		})
		got := make([]byte, 16384)
		if _, err := below.ReadAt(got, 0); err != nil {
			t.Fatal(err)
		}
		nines := bytes.Count(got, []byte{9})
		if whole := nines == 4096 && got[8192] == 9; whole != (kind == None) {
			t.Errorf("fault %d: %d bytes written, first of the block %d", kind, nines, got[8192])
		}
		if bytes.Count(data, []byte{9}) != 4096 {
			t.Errorf("fault %d changed the caller's bytes", kind)
		}
	}
}

// TestSeededFaultsRepeat: the same seed strikes the same operations.
func TestSeededFaultsRepeat(t *testing.T) {
	run := func(seed uint64) (log []string) {
		m := NewMem(1 << 20)
		y := &Faulty{m, &Faults{Seed: seed, Chance: map[OpKind]float64{OpWrite: 0.3}, Kinds: []FaultKind{EIO, Lose}, Log: func(s string) { log = append(log, s) }}}
		f, err := y.OpenFile("f", OpenOptions{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			_, _ = f.WriteAt([]byte{1}, int64(i))
		}
		if _, n := y.Faults.Ops(); n < 10 || n > 60 {
			t.Errorf("%d of 100 struck", n)
		}
		y.Faults.Stop()
		if _, err := f.WriteAt([]byte{1}, 0); err != nil {
			t.Errorf("after Stop: %v", err)
		}
		return log
	}
	a, b, c := fmt.Sprint(run(1)), fmt.Sprint(run(1)), fmt.Sprint(run(2))
	if a != b || a == c {
		t.Error("the seed does not decide")
	}
}

// TestCrash: what was synced is there after a loss of power, what was not is there, gone or torn, by the seed; nothing works in
// between.
func TestCrash(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(60) {
		m := NewCrashMem(1<<20, seed)
		faults := &Faults{Seed: seed, Of: []OpKind{OpWrite, OpSync}, Nth: 4, Kind: PowerOff}
		y := &Faulty{m, faults}
		f, err := y.OpenFile("f", OpenOptions{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		old, fresh := bytes.Repeat([]byte{1}, 256), bytes.Repeat([]byte{2}, 256)
		if _, err := f.WriteAt(old, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(fresh, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("the fourth: %v", err)
		}
		if _, err := f.ReadAt(old, 0); !errors.Is(err, syscall.EIO) {
			t.Errorf("a read without power: %v", err)
		}
		if _, err := y.OpenFile("f", OpenOptions{}); !errors.Is(err, syscall.EIO) {
			t.Errorf("opened without power: %v", err)
		}
		m.Crash()
		faults.Stop()
		got := make([]byte, 256)
		if _, err := f.ReadAt(got, 0); err != nil {
			t.Fatal(err)
		}
		n := bytes.Count(got, []byte{2})
		if n%64 != 0 || !bytes.Equal(got, append(fresh[:n:n], bytes.Repeat([]byte{1}, 256-n)...)) {
			t.Fatalf("seed %d: %v", seed, got)
		}
		seen[map[bool]string{true: "all", false: "torn"}[n == 256]+map[bool]string{true: " none"}[n == 0]] = true
	}
	if len(seen) != 3 {
		t.Errorf("after 60 crashes: %v", seen)
	}
}

// TestFailedSync: what a failed sync did not write is lost, also where the next one goes well.
func TestFailedSync(t *testing.T) {
	m := NewCrashMem(1<<20, 1)
	f, err := (&Faulty{m, &Faults{Of: []OpKind{OpSync}, Nth: 2, Kind: EIO}}).OpenFile("f", OpenOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []error{nil, syscall.EIO, nil} {
		if _, err := f.WriteAt([]byte{byte(i + 1)}, int64(i/2)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); !errors.Is(err, want) {
			t.Fatalf("sync %d: %v", i, err)
		}
	}
	got := make([]byte, 2)
	if _, err := f.ReadAt(got, 0); err != nil || got[0] != 2 || got[1] != 3 {
		t.Errorf("before the crash: %v, %v", got, err)
	}
	m.Crash()
	if _, err := f.ReadAt(got, 0); err != nil || got[0] != 1 || got[1] != 3 {
		t.Errorf("after the crash: %v, %v", got, err)
	}
}

func TestHang(t *testing.T) {
	struck(t, Hang, func(f File) {
		done := make(chan error)
		go func() { _, err := f.ReadAt(make([]byte, 10), 0); done <- err }()
		for faults := f.(*faultyFile).faults; ; {
			if _, n := faults.Ops(); n == 1 {
				select {
				case <-done:
					t.Error("it did not hang")
				default:
				}
				faults.Release()
				break
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
