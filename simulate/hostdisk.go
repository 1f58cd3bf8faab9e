package simulate

import (
	"context"
	"time"

	"terrace/internal/vfs"
)

// Disk is a file system in memory whose operations take a measured device's time on a clock of events: one after another each
// takes the device some time and some more a byte, and ends a latency later. What ended is compared with its checksum on a core.
type Disk struct {
	*vfs.Mem
	cores *cores
	d     Device
	free  time.Duration
	ended int64 // operations, and bytes
	bytes int64
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

// deviceOf takes a device's rates from a host's reads (offload.StorageRates.ReadCost); alone a read takes a latency more.
func deviceOf(h Host) (d Device) {
	d.Op, d.Byte = h.Storage.ReadCost()
	d.Latency = max(0, h.Storage.Latency-d.Op-d.Byte*4096)
	d.Hand = h.Storage.Submit
	if h.Storage.SubmitLarge > d.Hand && d.Hand > 0 {
		d.HandByte = (h.Storage.SubmitLarge - d.Hand) / (256<<10 - 12<<10)
		d.Hand = max(0, d.Hand-d.HandByte*(12<<10))
	}
	if h.Rates.Check > 0 {
		d.TakeByte = 1 / h.Rates.Check
	}
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
func (f diskFile) NewEngine(depth int) vfs.Engine { return &diskEngine{f, depth} }

// diskEngine moves the bytes at once and says so when the device would have.
type diskEngine struct {
	f     diskFile
	depth int
}

func (e *diskEngine) Start(ios []*vfs.IO) {
	d := e.f.d
	for _, op := range ios {
		if op.Write {
			op.N, op.Err = e.f.WriteVecAt(op.Bufs, op.Off)
		} else {
			op.N, op.Err = e.f.ReadVecAt(op.Bufs, op.Off)
		}
		n := float64(op.Bytes())
		d.cores.work(d.d.Hand + d.d.HandByte*n)
		d.free = max(d.cores.clock.Now(), d.free) + modelled(d.d.Op+d.d.Byte*n)
		end := d.free + modelled(d.d.Latency)
		d.cores.clock.Go(func() {
			_ = d.cores.clock.Sleep(context.Background(), end-d.cores.clock.Now())
			d.ended, d.bytes = d.ended+1, d.bytes+int64(op.Bytes())
			d.cores.work(d.d.Take + d.d.TakeByte*n)
			op.Done(op)
		})
	}
}

func (e *diskEngine) Poll()        {}
func (e *diskEngine) Name() string { return "modelled" }
func (e *diskEngine) Depth() int   { return e.depth }
func (e *diskEngine) Close() error { return nil }
