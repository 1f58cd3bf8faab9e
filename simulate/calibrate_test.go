package simulate

import (
	"math"
	"testing"
	"time"

	"terrace/internal/clock"
	"terrace/internal/vfs"
	"terrace/offload"
)

// TestCalibrate: what is left of a run's time when all that has a rate is taken away is shared by what was asked for, and what taking took
// beside its checksums by the operations.
func TestCalibrate(t *testing.T) {
	h := Host{Rates: offload.HostRates{Copy: 1e10, Check: 5e9}, Compute: Compute{Layer: 10e-6, Scan: 1e-10}}
	w := HostWork{Layers: 300, Free: FreeUse{Ops: 1000, Bytes: 5e7, Moving: 50 * time.Millisecond, Taking: 14 * time.Millisecond}}
	w.Work[clock.Scan], w.Work[clock.Gather], w.Work[clock.Ask] = 1e8, 1e8, 20000
	w.Outside = 0.050 + 0.014 + 300*10e-6 + 0.01 + 0.01 + 20000*0.7e-6
	h.Calibrate(w)
	if math.Abs(h.Compute.Ask/0.7e-6-1) > 1e-6 || math.Abs(h.Compute.Take/4e-6-1) > 1e-6 {
		t.Errorf("asking %g s, taking %g s", h.Compute.Ask, h.Compute.Take)
	}
	if h.Calibrate(HostWork{Outside: 1}); math.Abs(h.Compute.Ask/0.7e-6-1) > 1e-6 || math.Abs(h.Compute.Take/4e-6-1) > 1e-6 {
		t.Errorf("a run that asked for nothing says that asking takes %g s, taking %g s", h.Compute.Ask, h.Compute.Take)
	}
	w.Outside = 0
	if h.Calibrate(w); h.Compute.Ask != 0 {
		t.Errorf("less time than the rates say: asking %g s", h.Compute.Ask)
	}
}

// TestFreeDisk: operations end as they are started, also those that are started by what ends; bytes are moved, and time is booked once.
func TestFreeDisk(t *testing.T) {
	d := NewFreeDisk()
	f, err := d.OpenFile("kv", vfs.OpenOptions{Create: true, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	e, _ := vfs.NewEngine(f, 8, true)
	if err := f.Preallocate(1 << 20); err != nil || f.Alignment() != 512 || e.Depth() != 8 {
		t.Fatal(err)
	}
	wrote, read, ended := []byte("some bytes"), make([]byte, 10), 0
	begun := time.Now()
	e.Start([]*vfs.IO{{Write: true, Off: 512, Bufs: [][]byte{wrote}, Done: func(*vfs.IO) {
		e.Start([]*vfs.IO{{Off: 512, Bufs: [][]byte{read}, Done: func(*vfs.IO) { ended++ }}})
		ended++
	}}})
	passed := time.Since(begun)
	u := d.Used()
	if ended != 2 || string(read) != string(wrote) || u.Ops != 2 || u.Bytes != 20 || u.Moving <= 0 || u.Taking <= 0 || u.Moving+u.Taking > passed {
		t.Errorf("%d ended, %q, %+v in %v", ended, read, u, passed)
	}
	if u := d.Used(); u != (FreeUse{}) {
		t.Errorf("%+v left", u)
	}
}

// TestWhoPollsTakes: who polls takes what has ended at once; where nobody does the engine's own task takes it, all together, once it was
// woken.
func TestWhoPollsTakes(t *testing.T) {
	const op, latency, wake, hand = 40e-6, 60e-6, 30e-6, 5e-6
	for _, polls := range []bool{true, false} {
		p := PaceHost(Host{Cores: 2, Storage: &offload.StorageRates{}, Device: &Device{Hand: hand, Op: op, Latency: latency, Wake: wake, Poll: 1e-7}})
		f, err := p.Disk.OpenFile("kv", vfs.OpenOptions{Create: true, Direct: true})
		if err != nil {
			t.Fatal(err)
		}
		e, _ := vfs.NewEngine(f, 32, true)
		var ended []float64
		var list []*vfs.IO
		for range 3 {
			list = append(list, &vfs.IO{Bufs: [][]byte{make([]byte, 512)}, Done: func(*vfs.IO) { ended = append(ended, p.Clock.Now().Seconds()) }})
		}
		e.Start(list)
		if now := p.Clock.Now().Seconds(); math.Abs(now-3*hand) > 1e-9 {
			t.Errorf("handing three over took %g s", now)
		}
		for len(ended) < 3 {
			if polls {
				e.Poll()
			} else {
				p.Settle()
			}
		}
		for i, at := range ended {
			want := hand + float64(i+1)*op + latency
			if !polls {
				want = hand + 3*op + latency + wake
			}
			if math.Abs(at-want) > 2e-7 {
				t.Errorf("polling %v: operation %d was taken after %g s, want %g", polls, i, at, want)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
