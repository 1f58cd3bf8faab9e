package offload

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"terrace/internal/clock"
	"terrace/internal/kvpage"
)

func TestProfileIsKept(t *testing.T) {
	path := ProfileFile(filepath.Join(t.TempDir(), "home"))
	if _, err := LoadProfile(path); !errors.Is(err, ErrMissing) {
		t.Errorf("no profile: %v", err)
	}
	p := Profile{Version: profileVersion, Source: "measured", CPU: "x", Host: HostRates{Threads: 2, Scan: map[string]float64{"int8": 10}, Copy: 20},
		Storage: []StorageRates{{Dir: "/d", StreamRead: 3, Random: map[string]float64{"4": 5}}}}
	if err := SaveProfile(path, p); err != nil {
		t.Fatal(err)
	}
	got, err := LoadProfile(path)
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("read back %+v, %v", got, err)
	}
	for _, bad := range []string{"", "{", `{"version":9,"host":{"copy_bytes_per_s":1}}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadProfile(path); !errors.Is(err, ErrShape) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestMeasure runs a short measurement: every figure is there, and nothing is left in the directory but the lock.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	r, err := MeasureStorage(context.Background(), dir, MeasureOptions{SizeBytes: 24 << 20, Each: time.Millisecond, Rounds: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r.StreamRead <= 0 || r.StreamWrite <= 0 || len(r.Random) != 4 || len(r.Store) != 4 || r.Engine == "" {
		t.Errorf("rates %+v", r)
	}
	for _, s := range r.Store {
		if s.Bytes <= 0 || s.Reads <= 0 || s.Ratio <= 0 {
			t.Errorf("store %+v", s)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := MeasureStorage(ctx, dir, MeasureOptions{SizeBytes: 24 << 20}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if h := MeasureHost(HostOptions{Threads: 1, Each: time.Microsecond, Bytes: 3 << 20, Clock: slowClock{clock.Real()}}); h.Copy < 1e12 || h.Check < 1e12 || h.Scan["int8"] < 1e12 {
		t.Errorf("by a clock that goes a hundred thousand times slower: %+v", h)
	}
	if h := MeasureHost(HostOptions{Threads: 1, Each: time.Microsecond, Bytes: 3 << 20}); h.Copy <= 0 || len(h.Scan) != 3 || h.Scan["int8"] <= 0 || h.Threads != 1 || len(h.ByShape) != 9 {
		t.Errorf("host %+v", h)
	}
	h := HostRates{Scan: map[string]float64{"int8": 1, "int4": 2}, ByShape: map[string]float64{"int8/3x64": 1, "int8/8x128": 5, "int8/1x256": 4, "int8/2x32": 7}}
	for _, c := range []struct {
		elem       kvpage.Elem
		heads, dim int
		want       float64
	}{{kvpage.I8, 3, 64, 1}, {kvpage.I8, 2, 32, 7}, {kvpage.I8, 5, 128, 5}, {kvpage.I8, 1, 240, 4}, {kvpage.I8, 2, 64, 1}, {kvpage.I4, 8, 128, 2}} {
		if got := h.ScanRate(c.elem, c.heads, c.dim); got != c.want {
			t.Errorf("%v keys of %dx%d: %g, want %g", c.elem, c.heads, c.dim, got, c.want)
		}
	}
}

// TestBriefRates: what is measured briefly has a rate for every type of keys, of the model's shape, which stands for shapes near it; a
// host that was not measured has none.
func TestBriefRates(t *testing.T) {
	brief := MeasureHostBriefly(1, 2, 64)
	if brief.Copy <= 0 || brief.Threads != 1 {
		t.Errorf("copies %g bytes a second, on %d threads", brief.Copy, brief.Threads)
	}
	for _, e := range []kvpage.Elem{kvpage.F16, kvpage.I8, kvpage.I4} {
		own := brief.ScanRate(e, 2, 64)
		if own <= 0 || brief.ScanRate(e, 3, 64) != own {
			t.Errorf("%v: %g of the model's shape, %g of one near it", e, own, brief.ScanRate(e, 3, 64))
		}
		if none := (&HostRates{}).ScanRate(e, 2, 64); none != 0 {
			t.Errorf("%v: %g of a host that was not measured", e, none)
		}
	}
}

// slowClock goes a hundred thousand times slower.
type slowClock struct{ clock.Clock }

func (c slowClock) Now() time.Duration { return c.Clock.Now() / 100_000 }
