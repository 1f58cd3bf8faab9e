package simulate

import (
	"math"
	"testing"
	"time"

	"terrace/internal/kvpage"
	"terrace/internal/vfs"
	"terrace/internal/vfs/uring"
	"terrace/offload"
)

// TestDiskTakesTheDevicesTime: reads take one after another what was fitted at depth, and a latency more; the bytes are those written.
func TestDiskTakesTheDevicesTime(t *testing.T) {
	const perOp, perByte, latency = 40e-6, 1e-9, 60e-6
	rate := func(n float64) float64 { return 1 / (perOp + perByte*n) }
	h := Host{Cores: 2, Storage: &offload.StorageRates{StreamRead: (256 << 10) * rate(256<<10), Latency: latency + perOp + 4096*perByte,
		Random: map[string]float64{"4": rate(4 << 10), "12": rate(12 << 10), "64": rate(64 << 10)}}}
	p := PaceHost(h)
	f, err := p.Disk.OpenFile("kv", vfs.OpenOptions{Create: true, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	e, notice := vfs.NewEngine(f, 32, true)
	if e.Name() != "modelled" || notice != "" || f.Alignment() != 512 {
		t.Errorf("%s %q, alignment %d", e.Name(), notice, f.Alignment())
	}
	var ended []time.Duration
	op := func(write bool, buf []byte) *vfs.IO {
		return &vfs.IO{Write: write, Bufs: [][]byte{buf}, Done: func(*vfs.IO) { ended = append(ended, p.Clock.Now()) }}
	}
	want, got := make([]byte, 16<<10), make([]byte, 16<<10)
	for i := range want {
		want[i] = byte(i)
	}
	if err := f.Preallocate(1 << 20); err != nil {
		t.Fatal(err)
	}
	e.Start([]*vfs.IO{op(true, want)})
	p.Settle()
	began := p.Clock.Now()
	ended = nil
	e.Start([]*vfs.IO{op(false, got), op(false, got)})
	for len(ended) < 2 { // who polls takes each as it comes
		e.Poll()
		_ = p.Clock.Sleep(t.Context(), 100*time.Nanosecond)
	}
	for i, at := range ended {
		if s := float64(i+1)*(perOp+perByte*float64(len(got))) + latency; math.Abs((at-began).Seconds()/s-1) > 0.01 {
			t.Errorf("read %d ended after %v, want %v s", i, at-began, s)
		}
	}
	if len(ended) != 2 || string(got) != string(want) {
		t.Errorf("%d reads ended", len(ended))
	}
}

// TestBalancedHost: a policy is told the rate at which the model scores; where that is not known by itself, the measured one.
func TestBalancedHost(t *testing.T) {
	h := Host{Rates: offload.HostRates{Threads: 2, Copy: 3e9, Scan: map[string]float64{"int8": 7e9}, ByShape: map[string]float64{"int8/3x64": 8e9}}}
	if r := h.Balanced(); r.ScanRate(kvpage.I8, 3, 64) != 8e9 {
		t.Errorf("measured: %+v", r)
	}
	h.Compute.Scan = 1 / 5e9
	r := h.Balanced()
	for _, e := range []kvpage.Elem{kvpage.F16, kvpage.I8, kvpage.I4} {
		if got := r.ScanRate(e, 3, 64); math.Abs(got/5e9-1) > 1e-12 || r.Threads != 2 || r.Copy != 3e9 {
			t.Errorf("%v: %g, %+v", e, got, r)
		}
	}
}

// TestCoresAreShared: who has work takes the core that is free first.
func TestCoresAreShared(t *testing.T) {
	p := PaceHost(Host{Cores: 2})
	done := make([]chan struct{}, 3)
	var at []time.Duration
	for i := range done {
		done[i] = make(chan struct{})
		p.Clock.Go(func() {
			defer close(done[i])
			p.cores.work(1)
			at = append(at, p.Clock.Now())
		})
	}
	for _, d := range done {
		p.Clock.Wait(d)
	}
	if len(at) != 3 || at[0] != time.Second || at[1] != time.Second || at[2] != 2*time.Second {
		t.Errorf("%v", at)
	}
}

// TestWhoWaitsCountsWhatOthersTook: who waits for three operations goes on when the third has ended, although somebody else has taken two.
func TestWhoWaitsCountsWhatOthersTook(t *testing.T) {
	const op, latency = 40e-6, 60e-6
	p := PaceHost(Host{Cores: 2, Storage: &offload.StorageRates{}, Device: &Device{Op: op, Latency: latency}})
	f, err := p.Disk.OpenFile("kv", vfs.OpenOptions{Create: true, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &diskRing{f: f.(diskFile), depth: 8}
	requests := make([]uring.Request, 3)
	for i := range requests {
		requests[i] = uring.Request{Tag: uint64(i), Bufs: [][]byte{make([]byte, 512)}}
	}
	if n, err := r.Submit(requests); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	woken, done := time.Duration(0), make(chan struct{})
	p.Clock.Go(func() {
		defer close(done)
		if err := r.AwaitSome(3, time.Millisecond); err != nil {
			t.Error(err)
		}
		woken = p.Clock.Now()
	})
	_ = p.Clock.Sleep(t.Context(), modelled(2*op+latency))
	if got := r.Reap(nil); len(got) != 2 {
		t.Errorf("%d had ended", len(got))
	}
	p.Clock.Wait(done)
	if want := modelled(3*op + latency); woken != want {
		t.Errorf("woken after %v, want %v", woken, want)
	}
}
