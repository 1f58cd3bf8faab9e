package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"terrace/csdshim"
	"terrace/csdshim/attend"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/internal/vfs"
)

// instBuiltUses are what a layer's attention as it is built runs.
var instBuiltUses = []string{"csdshim", "csdshim/attend", "csdshim/flash", "csdshim/nand", "policy", "attention", "internal/clock"}

// instDrives is one layer's attention on drives that share its heads, on the drive's own code: translation layer, engine, flash, link and their
// times, on one clock of events. Keys and values are real (random) numbers in memory.
type instDrives struct {
	m       shape
	tokens  int
	drives  int
	apart   bool // keys and values have pages of their own, as in the paper
	run     int  // neighbouring tokens whose keys are alike, so that they are chosen together; 1 = keys have nothing in common
	profile csdshim.Profile

	clock    *clock.Events
	all      []*csdshim.Drive
	sessions []*csdshim.Session
	heads    []int // of each drive
	at       int   // tokens of each text
}

// instBuiltBatch is the batch of the paper's Fig. 17.
const instBuiltBatch = 256

// instBlockPages are the pages of an erase block here, not the profile's 256: a layer alone fills them as all layers of a text fill those.
const instBlockPages = 32

// instTexts is how many sequences there are: what the second takes more than the first is what each further one takes.
const instTexts = 2

// instLayer is what a layer takes.
type instLayer struct {
	first, more time.Duration            // of one sequence; of each further one
	stages      map[string]time.Duration // of the first, on the drive that was done last
	pages       int                      // of the first that left the flash, on all drives
}

// split are the heads of each of n drives: those that do not divide evenly go to the first.
func split(heads, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = heads / n
		if i < heads%n {
			out[i]++
		}
	}
	return out
}

// open makes the drives and puts the texts on them.
func (d *instDrives) open() error {
	d.clock, d.heads = clock.NewEvents(), split(d.m.heads, d.drives)
	for i, h := range d.heads {
		n := d.profile.NAND
		n.BlockPages = instBlockPages
		texts := int64((3*instTexts + 2) * (d.tokens + 64) * h * d.m.headDim * 2)                  // keys twice, values once; and once both as they are streamed
		size := 4 * (texts + int64(instTexts*n.Channels*n.Dies*n.Planes*n.BlockPages*n.PageBytes)) // most blocks stay free, so that each text lies on all dies
		profile := d.profile
		profile.NAND = n
		drive, err := csdshim.OpenDrive(fmt.Sprintf("drive%d", i), csdshim.Options{Profile: profile, CapacityBytes: size, Clock: d.clock, NoSync: true, FS: vfs.NewMem(2*size + 64<<20), Attention: attend.New()})
		if err != nil {
			return err
		}
		d.all, d.sessions = append(d.all, drive), append(d.sessions, drive.Connect([16]byte{1}, 0))
	}
	for text := range instTexts {
		rng := rand.New(rand.NewPCG(uint64(text), uint64(d.run)))
		var base []float32
		for at := 0; at < d.tokens; at += 256 {
			n := min(256, d.tokens-at)
			keys := d.keys(rng, &base, at, n)
			if err := d.append(text, at, n, keys); err != nil {
				return err
			}
		}
	}
	d.at = d.tokens
	return d.clock.Sleep(context.Background(), time.Hour) // until nothing is under way
}

// keys are n tokens' keys of all heads from token at on, [n][heads][dim] in half precision; base is what the tokens of a run have in common.
func (d *instDrives) keys(rng *rand.Rand, base *[]float32, at, n int) []byte {
	width := d.m.heads * d.m.headDim
	row, out := make([]float32, width), make([]byte, 2*n*width)
	number := func() float32 { return float32(rng.Uint32()>>8)/(1<<23) - 1 }
	for i := range n {
		if d.run > 1 && (at+i)%d.run == 0 || len(*base) == 0 {
			*base = slices.Grow((*base)[:0], width)[:width]
			for j := range *base {
				(*base)[j] = number()
			}
		}
		for j := range row {
			row[j] = number()
			if d.run > 1 {
				row[j] = 0.95*(*base)[j] + 0.05*row[j]
			}
		}
		kvpage.PutRow(kvpage.F16, out[2*i*width:2*(i+1)*width], row)
	}
	return out
}

// part is the heads of a drive of rows of all heads.
func (d *instDrives) part(drive, n int, rows []byte) []byte {
	first, row := 0, 2*d.m.headDim
	for _, h := range d.heads[:drive] {
		first += h
	}
	out := make([]byte, 0, n*d.heads[drive]*row)
	for i := range n {
		out = append(out, rows[(i*d.m.heads+first)*row:(i*d.m.heads+first+d.heads[drive])*row]...)
	}
	return out
}

// tail is a drive's part of new tokens, whose values are as their keys.
func (d *instDrives) tail(drive, text, at, n int, keys []byte) csdshim.Tail {
	rows := d.part(drive, n, keys)
	return csdshim.Tail{Seq: uint64(text) + 1, At: at, Tokens: n, Keys: rows, Values: rows}
}

func (d *instDrives) append(text, at, n int, keys []byte) error {
	for i, s := range d.sessions {
		if at == 0 {
			shape := csdshim.AttendShape{Layers: 1, Heads: d.heads[i], KeyDim: d.m.headDim, ValueDim: d.m.headDim, ElemBytes: 2, TokenGroup: d.profile.NAND.PageBytes / (4 * d.m.headDim), EmbeddingGroup: instEmbed, Paired: true, Elem: kvpage.F16}
			if d.apart {
				shape.TokenGroup, shape.Paired = 2*shape.TokenGroup, false
			}
			if err := s.OpenAttended(uint64(text)+1, shape); err != nil {
				return err
			}
		}
		m := d.tail(i, text, at, n, keys)
		if _, _, err := s.Append(context.Background(), &m); err != nil {
			return err
		}
	}
	return nil
}

// close ends the drives.
func (d *instDrives) close() (err error) {
	for i, drive := range d.all {
		d.sessions[i].Disconnect()
		err = errors.Join(err, drive.Close())
	}
	return err
}

// layer attends to a new token of the first texts, all at the same time, on all drives; ratio 0 = dense.
func (d *instDrives) layer(texts int, ratio float64) (took time.Duration, stages map[string]time.Duration, pages int, err error) {
	began, left, done := d.clock.Now(), texts*d.drives, make(chan struct{})
	rng := rand.New(rand.NewPCG(uint64(d.at), 7))
	byDrive, latest := make([][]csdshim.Stage, d.drives), make([]time.Duration, d.drives)
	for text := range texts {
		q := make([]float32, d.m.heads*d.m.headDim)
		for i := range q {
			q[i] = float32(rng.NormFloat64())
		}
		var base []float32
		keys, from := d.keys(rng, &base, 0, 1), 0
		for i, s := range d.sessions {
			m := csdshim.AttendQuery{Traced: true, Scale: float32(1 / math.Sqrt(float64(d.m.headDim))), Tail: d.tail(i, text, d.at, 1, keys), Q: q[from : from+d.heads[i]*d.m.headDim]}
			from += d.heads[i] * d.m.headDim
			if ratio > 0 {
				n := d.at + 1
				m.Dims, m.Best = max(1, int(ratio*float64(d.m.headDim))), max(1, int(ratio*float64(n)/2))
				m.Local = max(1, m.Best/4)
			}
			d.clock.Go(func() {
				_, got, failed := s.Attend(context.Background(), &m)
				err = errors.Join(err, failed)
				byDrive[i], latest[i] = append(byDrive[i], got.Stages...), d.clock.Now()-began
				pages += int(got.Work.PagesRead)
				if left--; left == 0 {
					close(done)
				}
			})
		}
	}
	d.clock.Wait(done)
	slowest := 0
	for i := range latest {
		if latest[i] > latest[slowest] {
			slowest = i
		}
	}
	took = latest[slowest]
	return took, attend.ByStage(byDrive[slowest], took), pages, err
}

// streamed is how long the drives take to send all keys and values of a layer of one text to the host, whose heads they share: dense streaming.
func (d *instDrives) streamed() (took time.Duration, err error) {
	left, done := d.drives, make(chan struct{})
	var began time.Duration
	send := make([]func(), d.drives)
	for i, s := range d.sessions {
		shape := csdshim.Shape{Layers: 1, KVHeads: d.heads[i], Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: d.m.headDim, ValueDim: d.m.headDim, Tokens: csdshim.GroupTokens, TokenMajor: true}}
		const number = instTexts + 1
		err = errors.Join(err, s.OpenSequence(number, shape))
		var groups []csdshim.Group
		for g := range d.tokens / csdshim.GroupTokens {
			groups = append(groups, csdshim.Group{Index: g, Data: make([]byte, shape.RecordBytes())})
		}
		if err == nil {
			_, err = s.Write(context.Background(), number, groups)
		}
		send[i] = func() {
			_, failed := s.Read(context.Background(), number, groups)
			err = errors.Join(err, failed)
			if took = max(took, d.clock.Now()-began); left == 1 {
				close(done)
			}
			left--
		}
	}
	if err = errors.Join(err, d.clock.Sleep(context.Background(), time.Hour)); err != nil {
		return 0, err
	}
	began = d.clock.Now()
	for _, f := range send {
		d.clock.Go(f)
	}
	d.clock.Wait(done)
	return took, err
}

// measure runs a layer with one and with all texts; each has a token more afterwards.
func (d *instDrives) measure(ratio float64) (l instLayer, err error) {
	rest := func() {
		if err == nil {
			err = d.clock.Sleep(context.Background(), time.Hour)
		}
	}
	rest()
	l.first, l.stages, l.pages, err = d.layer(1, ratio)
	rest()
	both, _, _, failed := d.layer(instTexts, ratio) // the first text has its newest token already, and is answered again
	l.more = both - l.first
	d.at++
	return l, errors.Join(err, failed)
}
