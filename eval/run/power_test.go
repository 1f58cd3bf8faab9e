package run

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"testing"

	"terrace/eval/fakes"
	"terrace/internal/vfs"
)

// powerDisk is a disk on a virtual file system, whose power may fail at any operation. It writes whole files as internal/replace
// does: beside their place, synced, renamed.
type powerDisk struct{ fs vfs.FS }

func (d powerDisk) open(path string, create bool) (*powerFile, error) {
	f, err := d.fs.OpenFile(path, vfs.OpenOptions{Create: create})
	return &powerFile{File: f}, err
}

func (d powerDisk) ReadFile(path string) ([]byte, error) {
	f, err := d.open(path, false)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

func (d powerDisk) Replace(path string, data []byte) error {
	f, err := d.open(path+".new", true)
	if err == nil {
		err = f.Truncate(0) // of an attempt before
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = d.fs.Rename(path+".new", path)
	}
	return err
}

func (d powerDisk) Records(path string) (records, error) { return d.open(path, true) }

// powerFile reads and writes where it stands.
type powerFile struct {
	vfs.File
	at int64
}

func (f *powerFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.at)
	f.at += int64(n)
	return n, err
}

func (f *powerFile) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.at)
	f.at += int64(n)
	return n, err
}

func (f *powerFile) Seek(off int64, whence int) (int64, error) {
	if whence != io.SeekStart {
		return 0, errors.ErrUnsupported
	}
	f.at = off
	return off, nil
}

// TestPowerLoss: whatever operation of a run the power fails at, and whatever is left then of what was not synced, the same command
// goes on and ends with the bytes of a run that was never interrupted; what was acknowledged is not computed again.
func TestPowerLoss(t *testing.T) {
	const samples = 2
	dir := t.TempDir() // of the lock, which is the system's
	all := func(on vfs.FS, r *fakes.Runner) (kept int, err error) {
		f, err := openOn(powerDisk{on}, dir, testOptions(samples), Machine{CPU: "fake"}, nil)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		_, err = Run(context.Background(), f, echoSuite{samples}, r, nil)
		return len(f.Outcomes()), err
	}
	files := func(m *vfs.Mem) (out [4]string) {
		for i, name := range []string{samplesFile, resultsFile, optionsFile, machineFile} {
			raw, err := powerDisk{m}.ReadFile(dir + "/" + name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			out[i] = string(raw)
		}
		return out
	}
	whole, count := vfs.NewMem(1<<20), &vfs.Faults{}
	total, err := all(&vfs.Faulty{FS: whole, Faults: count}, &fakes.Runner{})
	if err != nil || total != 6*samples {
		t.Fatalf("%d outcomes, %v", total, err)
	}
	want := files(whole)
	ops, _ := count.Ops()
	if ops < 3*int64(total) || want[1] == "" {
		t.Fatalf("%d operations", ops)
	}
	for n := int64(1); n <= ops; n++ {
		m := vfs.NewCrashMem(1<<20, uint64(n))
		kept, err := all(&vfs.Faulty{FS: m, Faults: &vfs.Faults{Seed: uint64(n), Nth: n, Kind: vfs.PowerOff}}, &fakes.Runner{})
		if err == nil {
			t.Fatalf("operation %d of %d: the power went and nobody noticed", n, ops)
		}
		m.Crash()
		r := &fakes.Runner{}
		again, err := all(m, r)
		if got := files(m); err != nil || again != total || got != want {
			t.Errorf("power off at operation %d of %d: %v, %d outcomes, files\n%q\nwant\n%q", n, ops, err, again, got, want)
		}
		if missing := total - kept; r.Prefills > (missing+2)/3 {
			t.Errorf("power off at operation %d: %d of %d outcomes were kept, and %d prompts read again", n, kept, total, r.Prefills)
		}
	}
}
