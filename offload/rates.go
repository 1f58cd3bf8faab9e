package offload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"terrace/internal/cacheshape"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/internal/storage"
	"terrace/internal/vfs"
)

// StorageRates are what a directory's device and the SSD store on it do. All are measured, in bytes or operations a second.
type StorageRates struct {
	Dir    string `json:"dir"`
	Engine string `json:"engine"` // io_uring or threads
	Direct bool   `json:"direct"` // past the page cache (storage.Direct)
	Notice string `json:"notice,omitempty"`

	StreamRead  float64            `json:"stream_read_bytes_per_s"`  // B_s: blocks of 256 KiB one after another
	StreamWrite float64            `json:"stream_write_bytes_per_s"` //
	Random      map[string]float64 `json:"random_reads_per_s"`       // by block size in KiB, at depth 32
	Latency     float64            `json:"read_latency_s,omitempty"` // of 4 KiB, one read at a time
	Submit      float64            `json:"submit_s,omitempty"`       // what handing one read of 12 KiB to the system takes of the caller's time, others under way
	SubmitLarge float64            `json:"submit_256k_s,omitempty"`  // likewise, of one of 256 KiB
	SubmitBy    map[string]float64 `json:"submit_s_by_kib,omitempty"`
	Polled      float64            `json:"polled_latency_s,omitempty"` // as Latency, where who waits polls and nobody is woken
	Poll        float64            `json:"poll_s,omitempty"`           // of asking once what has ended
	Store       []StoreRates       `json:"store"`                      // the SSD store against the raw loop
}

// StoreRates compare the store with a raw loop on the same device, as medians of pairs run in turn.
type StoreRates struct {
	RecordBytes int     `json:"record_bytes"`
	Access      string  `json:"access"` // "stream": all groups of layer after layer; "scatter": a tenth of each layer's groups
	Bytes       int64   `json:"bytes"`  // read by the store, in all rounds
	Reads       int64   `json:"reads"`
	StoreRate   float64 `json:"store_bytes_per_s"`
	RawRate     float64 `json:"raw_bytes_per_s"`
	Ratio       float64 `json:"ratio"` // median of the rounds' ratios
}

// MeasureOptions bound a measurement.
type MeasureOptions struct {
	SizeBytes int64         // of each file; default 256 MiB
	Each      time.Duration // at least, for each figure; default 300 ms
	Rounds    int           // pairs; default 5
	NoDirect  bool
	NoRing    bool
	NoStore   bool // the device alone, not the store on it
}

func (o *MeasureOptions) setDefaults() {
	if o.SizeBytes <= 0 {
		o.SizeBytes = 256 << 20
	}
	if o.Each <= 0 {
		o.Each = 300 * time.Millisecond
	}
	if o.Rounds <= 0 {
		o.Rounds = 5
	}
}

// rawBlock is the block of streaming loops: what the store reads at once.
const rawBlock = 256 << 10

// rawDevice is a file of its own on the device, for loops that do nothing but I/O.
type rawDevice struct {
	folder *storage.Folder
	path   string
	file   vfs.File
	engine vfs.Engine
	size   int64
	arena  []byte
	done   chan *vfs.IO
	clock  clock.Clock
	rnd    *rand.Rand
	at     int64 // where streaming goes on

	handed    time.Duration // what handing single operations over has taken
	handovers int64
}

func openRaw(o MeasureOptions, dir string) (_ *rawDevice, notice string, err error) {
	folder, err := storage.OpenFolder(dir, storage.Options{Buffered: o.NoDirect})
	if err != nil {
		return nil, "", err
	}
	const name = "terrace.measure"
	d := &rawDevice{folder: folder, path: folder.Path(name), clock: clock.Real(), rnd: rand.New(rand.NewPCG(1, 1))}
	if d.file, err = folder.Open(name, vfs.OpenOptions{Create: true}); err != nil {
		return nil, "", err
	}
	if folder.Notice() != "" {
		notice = "no " + storage.Direct + " on this file system: figures are those of the page cache"
	}
	d.size = o.SizeBytes / rawBlock * rawBlock
	if err := folder.Reserve(d.file, name, d.size); err != nil {
		return nil, "", errors.Join(err, d.file.Close(), folder.FS.Remove(d.path))
	}
	var why string
	d.engine, why = vfs.NewEngine(d.file, rawDepth, !o.NoRing)
	if why != "" {
		notice += " " + why
	}
	d.arena = vfs.AlignedBytes(rawDepth * rawBlock)
	for i := range d.arena {
		d.arena[i] = byte(i * 31)
	}
	d.done = make(chan *vfs.IO, rawDepth)
	return d, notice, nil
}

const rawDepth = 32

func (d *rawDevice) close() error {
	vfs.FreeAligned(d.arena)
	return errors.Join(d.engine.Close(), d.file.Close(), d.folder.FS.Remove(d.path))
}

// loop does reads or writes of a block size for at least a time, depth at once, and returns operations a second.
// With a total it does that many, whatever the time.
func (d *rawDevice) loop(ctx context.Context, write, random bool, block, depth int, total int64, each time.Duration) (float64, error) {
	blocks := d.size / int64(block)
	ios := make([]vfs.IO, depth)
	next := func(op *vfs.IO) {
		if d.at++; random {
			op.Off = d.rnd.Int64N(blocks) * int64(block)
		} else {
			op.Off = d.at % blocks * int64(block)
		}
	}
	var first []*vfs.IO
	for i := range ios {
		ios[i] = vfs.IO{Write: write, Bufs: [][]byte{d.arena[i*block : (i+1)*block]}, Done: func(op *vfs.IO) { d.done <- op }}
		next(&ios[i])
		first = append(first, &ios[i])
	}
	start := d.clock.Now()
	d.engine.Start(first)
	running, ended, failed := depth, int64(0), error(nil)
	for running > 0 {
		op := <-d.done
		if op.Err == nil && op.N != block {
			op.Err = fmt.Errorf("%d bytes of %d", op.N, block)
		}
		if op.Err != nil {
			failed = fmt.Errorf("offload: measuring %s: %w", d.path, op.Err)
		}
		ended++
		running--
		more := d.clock.Now()-start < each
		if total > 0 {
			more = ended+int64(running) < total
		}
		if failed == nil && ctx.Err() == nil && more {
			next(op)
			begun := d.clock.Now()
			d.engine.Start([]*vfs.IO{op})
			d.handed += d.clock.Now() - begun
			d.handovers++
			running++
		}
	}
	if failed == nil {
		failed = ctx.Err()
	}
	return float64(ended) / (d.clock.Now() - start).Seconds(), failed
}

// polling reads blocks of 4 KiB, one at a time, and asks for each until it has come: what a read takes so, and what asking once takes.
func (d *rawDevice) polling(ctx context.Context, each time.Duration) (read, poll float64, err error) {
	const block = 4 << 10
	n, asked, waited := 0, 0, time.Duration(0)
	start := d.clock.Now()
	for n == 0 || d.clock.Now()-start < each && ctx.Err() == nil {
		op := &vfs.IO{Off: d.rnd.Int64N(d.size/block) * block, Bufs: [][]byte{d.arena[:block]}, Done: func(op *vfs.IO) { d.done <- op }}
		d.engine.Start([]*vfs.IO{op})
		handed := d.clock.Now()
		for ended := false; !ended; asked++ {
			d.engine.Poll()
			if asked%16 == 15 { // as Ticket.watch does: what has been woken runs
				runtime.Gosched()
			}
			select {
			case op = <-d.done:
				ended = true
			default:
			}
		}
		if op.Err != nil {
			return 0, 0, fmt.Errorf("offload: measuring %s: %w", d.path, op.Err)
		}
		waited += d.clock.Now() - handed
		n++
	}
	return (d.clock.Now() - start).Seconds() / float64(n), waited.Seconds() / float64(asked), ctx.Err()
}

// handing is what handing one operation over has taken since it was asked last, in seconds.
func (d *rawDevice) handing() float64 {
	each := d.handed.Seconds() / float64(max(d.handovers, 1))
	d.handed, d.handovers = 0, 0
	return each
}

// MeasureStorage measures a directory's device and the SSD store on it. It writes two files of SizeBytes there and removes
// them. It takes some seconds.
func MeasureStorage(ctx context.Context, dir string, o MeasureOptions) (r StorageRates, err error) {
	o.setDefaults()
	d, notice, err := openRaw(o, dir)
	if err != nil {
		return r, fmt.Errorf("offload: measuring %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, d.close()) }()
	r = StorageRates{Dir: dir, Engine: d.engine.Name(), Direct: d.file.Alignment() > 1, Notice: notice, Random: map[string]float64{}, SubmitBy: map[string]float64{}}
	ops, err := d.loop(ctx, true, false, rawBlock, 8, d.size/rawBlock, 0) // every block is written once before it is read
	if err != nil {
		return r, err
	}
	r.StreamWrite = ops * rawBlock
	_ = d.handing() // of writes
	if ops, err = d.loop(ctx, false, false, rawBlock, 8, 0, o.Each); err != nil {
		return r, err
	}
	r.StreamRead = ops * rawBlock
	r.SubmitLarge = d.handing()
	for _, kib := range []int{4, 12, 16, 64} {
		if ops, err = d.loop(ctx, false, true, kib<<10, rawDepth, 0, o.Each); err != nil {
			return r, err
		}
		r.Random[fmt.Sprint(kib)], r.SubmitBy[fmt.Sprint(kib)] = ops, d.handing()
	}
	r.Submit = r.SubmitBy["12"]
	if ops, err = d.loop(ctx, false, true, 4<<10, 1, 0, o.Each); err != nil {
		return r, err
	}
	r.Latency = 1 / ops
	if r.Polled, r.Poll, err = d.polling(ctx, o.Each/4); err != nil {
		return r, err
	}
	if o.NoStore {
		return r, nil
	}
	for _, heads := range []int{3, 8} {
		dim := 64 * (1 + heads/8)
		shape := Shape{Layers: cacheshape.Equal(8, heads, cacheshape.KV{Heads: heads, KeyDim: dim, ValueDim: dim}), GroupTokens: 16, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, Tokens: 16}}
		s, err := measureStore(ctx, dir, d, shape, o)
		if err != nil {
			return r, err
		}
		r.Store = append(r.Store, s...)
	}
	return r, nil
}

// storeBench is an SSD store full of records, read layer by layer, two layers under way at a time.
type storeBench struct {
	s      *SSD
	q      *Queue
	shape  Shape
	groups int
	mem    []byte
	rnd    *rand.Rand
}

func measureStore(ctx context.Context, dir string, d *rawDevice, shape Shape, o MeasureOptions) (out []StoreRates, err error) {
	s, err := OpenSSD(shape, SSDOptions{Dir: dir, CapacityBytes: o.SizeBytes, NoDirect: o.NoDirect, NoRing: o.NoRing})
	if err != nil {
		return nil, err
	}
	b := &storeBench{s: s, q: NewQueue(s, QueueOptions{}), shape: shape, rnd: rand.New(rand.NewPCG(2, 2))}
	place := s.place.layers[0]
	b.groups = int(o.SizeBytes*3/4/int64(len(shape.Layers)*place.strideBytes)) / place.groups * place.groups
	b.mem = AlignedBytes(2 * b.groups * shape.RecordBytes(0))
	defer func() {
		err = errors.Join(err, b.q.Close(), s.Close())
		FreeAligned(b.mem)
	}()
	for layer := range shape.Layers {
		if err := b.q.Write(WriteBack, b.records(layer, 1)).Wait(ctx); err != nil {
			return nil, err
		}
	}
	for _, access := range []string{"stream", "scatter"} {
		r, err := b.pairs(ctx, d, access, o)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// records are a layer's groups in order, or one in so many of them at random, in the half of the memory that the layer's
// number gives.
func (b *storeBench) records(layer, oneIn int) (recs []Record) {
	size := b.shape.RecordBytes(0)
	mem := b.mem[layer%2*b.groups*size:]
	groups := b.rnd.Perm(b.groups)[:b.groups/oneIn]
	if oneIn == 1 {
		slices.Sort(groups)
	}
	for _, g := range groups {
		recs = append(recs, Record{Key: Key{1, int32(layer), int32(g)}, Data: mem[:size:size]})
		mem = mem[size:]
	}
	return recs
}

// pairs runs the raw loop and the store in turn.
func (b *storeBench) pairs(ctx context.Context, d *rawDevice, access string, o MeasureOptions) (StoreRates, error) {
	r := StoreRates{RecordBytes: b.shape.RecordBytes(0), Access: access}
	oneIn, block, depth := 1, rawBlock, 8
	if access == "scatter" {
		oneIn, block, depth = 10, b.s.place.layers[0].strideBytes, rawDepth
	}
	var ratios, stores, raws []float64
	before := b.s.Stats()
	for range o.Rounds {
		ops, err := d.loop(ctx, false, oneIn > 1, block, depth, 0, o.Each)
		if err != nil {
			return r, err
		}
		rate, err := b.read(ctx, oneIn, o.Each)
		if err != nil {
			return r, err
		}
		raw := ops * float64(block)
		ratios, stores, raws = append(ratios, rate/raw), append(stores, rate), append(raws, raw)
	}
	after := b.s.Stats()
	r.Bytes, r.Reads = after.ReadBytes-before.ReadBytes, after.Reads-before.Reads
	r.StoreRate, r.RawRate, r.Ratio = median(stores), median(raws), median(ratios)
	return r, nil
}

// read goes through the layers for at least a time, the next one under way while one is waited for, and returns bytes a second.
func (b *storeBench) read(ctx context.Context, oneIn int, each time.Duration) (float64, error) {
	layers := make([][]Record, len(b.shape.Layers))
	for i := range layers {
		layers[i] = b.records(i, oneIn)
	}
	c, n := clock.Real(), int64(0)
	start := c.Now()
	var ahead *Ticket
	for i := 0; c.Now()-start < each; i++ {
		t := b.q.Read(Prefetch, layers[i%len(layers)])
		if ahead != nil {
			if err := ahead.Wait(ctx); err != nil {
				return 0, err
			}
		}
		ahead = t
		n += int64(len(layers[i%len(layers)]) * b.shape.RecordBytes(0))
	}
	err := ahead.Wait(ctx)
	return float64(n) / (c.Now() - start).Seconds(), err
}

func median(x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[len(x)/2]
}
