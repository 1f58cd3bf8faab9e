package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"terrace/internal/golden/fifo"
)

// systems are the file systems that one body of tests runs on, each with a folder of its own.
func systems(t *testing.T) map[string]FS {
	return map[string]FS{"os": OS{}, "mem": NewMem(1 << 20), "faulty, without a fault": &Faulty{OS{}, &Faults{}}}
}

func TestFiles(t *testing.T) {
	for name, sys := range systems(t) {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			if err := sys.MkdirAll(dir); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "f")
			if _, err := sys.OpenFile(path, OpenOptions{}); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file that is not there: %v", err)
			}
			f, err := sys.OpenFile(path, OpenOptions{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Preallocate(8192); err != nil {
				t.Fatal(err)
			}
			if n, err := f.Size(); n != 8192 || err != nil {
				t.Errorf("size %d, %v", n, err)
			}
			if n, err := f.WriteVecAt([][]byte{[]byte("abc"), []byte("defg")}, 100); n != 7 || err != nil {
				t.Fatalf("write: %d, %v", n, err)
			}
			a, b := make([]byte, 2), make([]byte, 4)
			if n, err := f.ReadVecAt([][]byte{a, b}, 101); n != 6 || err != nil || string(a)+string(b) != "bcdefg" {
				t.Errorf("read %q %q: %d, %v", a, b, n, err)
			}
			if n, err := f.ReadVecAt([][]byte{a, b}, 8190); n != 2 || !errors.Is(err, io.EOF) {
				t.Errorf("over the end: %d, %v", n, err)
			}
			if err := f.PunchHole(100, 3); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				t.Error(err)
			} else if n, rerr := f.ReadAt(b, 99); err == nil && (string(b) != "\x00\x00\x00\x00" || n != 4 || rerr != nil) {
				t.Errorf("a hole reads as %q: %v", b, rerr)
			}
			if err := errors.Join(f.Truncate(104), f.Sync()); err != nil {
				t.Error(err)
			}
			if n, err := f.ReadAt(b, 101); n != 3 || !errors.Is(err, io.EOF) || string(b[2]) != "d" {
				t.Errorf("after a cut: %d bytes %q, %v", n, b, err)
			}
			moved := filepath.Join(dir, "g")
			if err := sys.Rename(path, moved); err != nil {
				t.Error(err)
			}
			if _, err := sys.OpenFile(path, OpenOptions{}); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file that was renamed: %v", err)
			}
			if err := sys.Rename(path, moved); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("renaming nothing: %v", err)
			}
			path = moved
			if f.Alignment() != 1 {
				t.Errorf("alignment %d of buffered I/O", f.Alignment())
			}
			if free, err := sys.FreeBytes(dir); free <= 0 || err != nil {
				t.Errorf("free: %d, %v", free, err)
			}
			if err := errors.Join(f.Sync(), f.Close(), sys.Remove(path)); err != nil {
				t.Error(err)
			}
			if err := sys.Remove(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("removing nothing: %v", err)
			}
		})
	}
}

// TestFull: buffers of all sizes, more than a call takes, over calls that end half done.
func TestFull(t *testing.T) {
	for name, sys := range map[string]FS{"os": OS{}, "short": &Faulty{NewMem(1 << 20), &Faults{Chance: map[OpKind]float64{OpRead: 0.4, OpWrite: 0.4}, Kinds: []FaultKind{Short}}}} {
		f, err := sys.OpenFile(filepath.Join(t.TempDir(), "f"), OpenOptions{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		var bufs, back [][]byte
		for i := range 2500 {
			bufs, back = append(bufs, bytes.Repeat([]byte{byte(i)}, 2+i%7)), append(back, make([]byte, 2+i%7))
		}
		if err := errors.Join(WriteFull(f, bufs, 5), ReadFull(f, back, 5)); err != nil || !bytes.Equal(bytes.Join(bufs, nil), bytes.Join(back, nil)) {
			t.Errorf("%s: %v", name, err)
		}
		if err := ReadFull(f, back, 6); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: over the end: %v", name, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	broken := &Faulty{NewMem(1 << 20), &Faults{Nth: 2, Kind: EIO}}
	f, err := broken.OpenFile("f", OpenOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteFull(f, [][]byte{{1}}, 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("a broken disk: %v", err)
	}
}

func TestLockNamesTheHolder(t *testing.T) {
	for name, sys := range systems(t) {
		path := filepath.Join(t.TempDir(), "lock")
		l, err := sys.Lock(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sys.Lock(path); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "process") {
			t.Errorf("%s: locked twice: %v", name, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l, err = sys.Lock(path)
		if err != nil {
			t.Fatalf("%s: after it was given back: %v", name, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPreallocateThatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	for name, sys := range systems(t) {
		f, err := sys.OpenFile(filepath.Join(dir, "big"), OpenOptions{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Preallocate(1 << 50); !errors.Is(err, ErrNoSpace) {
			t.Errorf("%s: more than there is: %v", name, err)
		}
		if err := errors.Join(f.Close(), sys.Remove(filepath.Join(dir, "big"))); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefusesWhatIsNotAFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "fifo")
	fifo.Make(t, pipe)
	if _, err := (OS{}).OpenFile(pipe, OpenOptions{}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a pipe: %v", err)
	}
}

// direct opens a file with O_DIRECT, or without where the file system has none.
func direct(t *testing.T) (File, int) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := (OS{}).OpenFile(path, OpenOptions{Create: true, Direct: true})
	if errors.Is(err, ErrNoDirect) {
		t.Logf("without O_DIRECT: %v", err)
		f, err = (OS{}).OpenFile(path, OpenOptions{Create: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if a := f.Alignment(); a&(a-1) != 0 || a > os.Getpagesize() {
		t.Fatalf("alignment %d", a)
	}
	return f, max(f.Alignment(), 512)
}

func TestEngines(t *testing.T) {
	for _, ring := range []bool{true, false} {
		f, block := direct(t)
		e, notice := NewEngine(f, 8, ring)
		t.Run(e.Name(), func(t *testing.T) {
			if notice != "" {
				t.Log(notice)
			}
			const n = 100 // more than the depth
			mem := AlignedBytes(2 * n * block)
			defer FreeAligned(mem)
			done := make(chan *IO, n)
			start := func(write bool) (ios []*IO) {
				for i := range n {
					at := mem[2*i*block:][:2*block]
					ios = append(ios, &IO{Write: write, Off: int64(2 * i * block), Bufs: [][]byte{at[:block], at[block:]}, Done: func(op *IO) { done <- op }, Owner: i})
				}
				e.Start(ios)
				return ios
			}
			await := func(want int) {
				t.Helper()
				seen := map[int]bool{}
				for range n {
					op := <-done
					if seen[op.Owner.(int)] || op.Err != nil || op.N != want {
						t.Fatalf("operation %v: %d bytes, %v", op.Owner, op.N, op.Err)
					}
					seen[op.Owner.(int)] = true
					e.Poll()
				}
			}
			for i := range mem {
				mem[i] = byte(i*7 + i>>9)
			}
			want := bytes.Clone(mem)
			start(true)
			await(2 * block)
			clear(mem)
			start(false)
			await(2 * block)
			if !bytes.Equal(mem, want) {
				t.Fatal("bytes read back are others")
			}
			op := &IO{Off: int64(2*n*block) - int64(block), Bufs: [][]byte{mem[:block], mem[block : 2*block]}, Done: func(op *IO) { done <- op }}
			e.Start([]*IO{op})
			if <-done; op.N != block || op.Err != nil {
				t.Errorf("over the end: %d bytes, %v", op.N, op.Err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEngineClosesWhileItCollects: the wake-up of Close, collected together with the last operations, still ends the engine.
func TestEngineClosesWhileItCollects(t *testing.T) {
	f, block := direct(t)
	mem := AlignedBytes(4 * block)
	defer FreeAligned(mem)
	for range 300 {
		e, _ := NewEngine(f, 8, true)
		done := make(chan struct{}, 4)
		var ios []*IO
		for i := range 4 {
			ios = append(ios, &IO{Write: true, Off: int64(i * block), Bufs: [][]byte{mem[i*block : (i+1)*block]}, Done: func(*IO) { done <- struct{}{} }})
		}
		e.Start(ios)
		for range ios {
			e.Poll()
			<-done
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEngineWithoutADescriptor(t *testing.T) {
	m := NewMem(1 << 20)
	f, err := m.OpenFile("f", OpenOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if e, notice := NewEngine(f, 4, true); e.Name() != "threads" || e.Depth() != 4 || notice == "" {
		t.Errorf("engine %s of depth %d, notice %q", e.Name(), e.Depth(), notice)
	}
	if _, err := m.OpenFile("f", OpenOptions{Direct: true}); !errors.Is(err, ErrNoDirect) {
		t.Errorf("direct I/O in memory: %v", err)
	}
	if !slices.Equal(m.Names(), []string{"f"}) {
		t.Errorf("files %v", m.Names())
	}
}
