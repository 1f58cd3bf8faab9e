package simulate

import (
	"context"
	"time"

	"terrace/internal/vfs"
	"terrace/internal/vfs/uring"
)

// Disk is a file system in memory whose operations take a measured device's time on a clock of events: one after another each
// takes the device some time and some more a byte, and ends a latency later. The product's own engine drives it (vfs.NewRingEngine): who
// starts operations hands them over, who polls takes what has ended, and a task of its own takes the rest.
type Disk struct {
	*vfs.Mem
	cores *cores
	d     Device
	free  time.Duration
}

// diskBytes is the most that a modelled disk holds.
const diskBytes = 8 << 30

// newDisk is a host's: as fitted to recorded runs, else as its rates say.
func newDisk(h Host, c *cores) *Disk {
	d := &Disk{Mem: vfs.NewMem(diskBytes), cores: c}
	if h.Device != nil {
		d.d = *h.Device
	} else {
		d.d = deviceOf(h)
	}
	return d
}

// deviceOf takes a device's rates from a host's reads (offload.StorageRates.ReadCost); alone a read takes a latency more, and where nobody
// polls somebody is woken.
func deviceOf(h Host) (d Device) {
	s := h.Storage
	d.Op, d.Byte = s.ReadCost()
	d.Hand, d.HandByte = s.HandCost()
	if d.Hand == 0 && d.HandByte == 0 {
		d.Hand = s.Submit
	}
	alone := s.Latency
	if s.Polled > 0 {
		alone, d.Wake, d.Poll = s.Polled, max(0, s.Latency-s.Polled), s.Poll
	}
	d.Latency = max(0, alone-d.Op-d.Byte*4096-d.Hand)
	if h.Rates.Check > 0 {
		d.TakeByte = 1 / h.Rates.Check
	}
	d.Take = h.Compute.Take
	return d
}

// OpenFile opens or makes a file, direct where that is asked for.
func (d *Disk) OpenFile(name string, o vfs.OpenOptions) (vfs.File, error) {
	direct := o.Direct
	o.Direct = false
	f, err := d.Mem.OpenFile(name, o)
	if err != nil {
		return nil, err
	}
	return diskFile{f, d, direct}, nil
}

type diskFile struct {
	vfs.File
	d      *Disk
	direct bool
}

// Alignment is a sector's.
func (f diskFile) Alignment() int {
	if f.direct {
		return 512
	}
	return f.File.Alignment()
}

// NewEngine implements vfs.Engined.
func (f diskFile) NewEngine(depth int) vfs.Engine {
	r := &diskRing{f: f, depth: depth}
	c := f.d.cores.clock
	return vfs.NewRingEngine(r, 0, depth, vfs.RingOptions{Name: "modelled", Go: c.Go, Wait: func(over <-chan struct{}) { c.Wait(over) }, Took: r.took})
}

// diskRing moves the bytes at once and says so when the device would have. Its calls take their time in took.
type diskRing struct {
	f      diskFile
	depth  int
	under  []landing // not reaped, in the order in which they end
	reaped int       // operations, so far
	owed   float64   // seconds of a core for calls since took
	asked  bool      // what has ended, and nothing had
	woken  bool
	change context.CancelFunc // somebody waits in AwaitSome: what he waits for has changed
}

// landing is an operation that the device is done with at some time.
type landing struct {
	at     time.Duration
	result uring.Result
	bytes  int
}

// Depth implements vfs.Ring.
func (r *diskRing) Depth() int { return r.depth }

// Submit implements vfs.Ring.
func (r *diskRing) Submit(reqs []uring.Request) (int, error) {
	d := r.f.d
	for i := range reqs {
		q := &reqs[i]
		l := landing{result: uring.Result{Tag: q.Tag}}
		for _, b := range q.Bufs {
			l.bytes += len(b)
		}
		if q.Write {
			l.result.N, l.result.Err = r.f.WriteVecAt(q.Bufs, q.Off)
		} else {
			l.result.N, l.result.Err = r.f.ReadVecAt(q.Bufs, q.Off)
		}
		n := float64(l.bytes)
		r.owed += d.d.Hand + d.d.HandByte*n
		d.free = max(d.cores.clock.Now()+modelled(r.owed), d.free) + modelled(d.d.Op+d.d.Byte*n)
		l.at = d.free + modelled(d.d.Latency)
		r.under = append(r.under, l)
	}
	r.changed()
	return len(reqs), nil
}

// Reap implements vfs.Ring.
func (r *diskRing) Reap(out []uring.Result) []uring.Result {
	n := r.landed()
	for _, l := range r.under[:n] {
		out = append(out, l.result)
	}
	r.under, r.reaped = append(r.under[:0], r.under[n:]...), r.reaped+n
	r.asked = n == 0
	return out
}

// landed is how many operations have ended.
func (r *diskRing) landed() (n int) {
	for now := r.f.d.cores.clock.Now(); n < len(r.under) && r.under[n].at <= now; n++ {
		continue
	}
	return n
}

// took takes the time of the calls since it was called last.
func (r *diskRing) took() {
	owed, d := r.owed, r.f.d
	r.owed = 0
	if r.asked {
		r.asked = false
		_ = d.cores.clock.Sleep(context.Background(), modelled(d.d.Poll)) // on a core that does nothing else meanwhile
	}
	if owed > 0 {
		d.cores.work(owed)
	}
}

func (r *diskRing) changed() {
	if r.change != nil {
		r.change()
	}
}

// AwaitSome implements vfs.Ring. As the kernel does it counts what has ended since it was called, whoever has reaped it.
func (r *diskRing) AwaitSome(n int, most time.Duration) error {
	c := r.f.d.cores.clock
	began, all := c.Now(), r.reaped+max(n, 1)
	for !r.woken && r.reaped+r.landed() < all {
		until := time.Duration(-1)
		if more := all - r.reaped; len(r.under) >= more {
			until = r.under[more-1].at
		}
		if n > 1 {
			if until < 0 || began+most < until {
				until = began + most
			}
			if until <= c.Now() {
				break
			}
		}
		changes, cancel := context.WithCancel(context.Background())
		r.change = cancel
		if until < 0 {
			c.Wait(changes.Done())
		} else {
			_ = c.Sleep(changes, until-c.Now()) // ends early where something has changed
		}
		cancel()
		r.change = nil
	}
	if !r.woken {
		_ = c.Sleep(context.Background(), modelled(r.f.d.d.Wake))
	}
	return nil
}

// Wake implements vfs.Ring.
func (r *diskRing) Wake() error {
	r.woken = true
	r.changed()
	return nil
}

// Close implements vfs.Ring.
func (r *diskRing) Close() error { return nil }
