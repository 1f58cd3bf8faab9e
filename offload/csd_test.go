package offload

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"terrace/csdshim"
	"terrace/csdshim/profiles"
	"terrace/internal/cacheshape"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
)

// csdDrive serves a drive in process and returns its socket; stop ends it, start serves the same folder again.
type csdDrive struct {
	t      *testing.T
	dir    string
	socket string
	cancel context.CancelFunc
	done   chan error
	drive  *csdshim.Drive
	faults csdshim.Faults
}

func newCSDDrive(t *testing.T) *csdDrive {
	dir, err := os.MkdirTemp("", "csd")
	if err != nil {
		t.Fatal(err)
	}
	d := &csdDrive{t: t, dir: t.TempDir(), socket: filepath.Join(dir, "s")}
	d.start()
	t.Cleanup(func() { d.stop(); os.RemoveAll(dir) })
	return d
}

func (d *csdDrive) start() {
	p, err := profiles.Load("unlimited")
	if err != nil {
		d.t.Fatal(err)
	}
	if d.drive, err = csdshim.OpenDrive(d.dir, csdshim.Options{Profile: p, CapacityBytes: 4 << 20, NoSync: true, Faults: d.faults}); err != nil {
		d.t.Fatal(err)
	}
	l, err := csdshim.Listen(d.socket)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel, d.done = cancel, make(chan error, 1)
	drive, done := d.drive, d.done
	go func() { done <- drive.Serve(ctx, l, csdshim.ServerOptions{}) }()
}

func (d *csdDrive) stop() {
	d.cancel()
	if err := <-d.done; err != nil {
		d.t.Error(err)
	}
	d.done <- nil
	d.drive.Close()
}

func csdShape() Shape {
	return Shape{Layers: cacheshape.Equal(2, 2, cacheshape.KV{Heads: 2, KeyDim: 32, ValueDim: 32}), GroupTokens: 16, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 32, ValueDim: 32, Tokens: 16}}
}

func csdRecord(s Shape, seq uint64, layer, group int32) Record {
	b := make([]byte, s.RecordBytes(int(layer)))
	for i := range b {
		b[i] = byte(int(seq)*31 + int(layer)*7 + int(group)*13 + i)
	}
	key := make([]float32, s.PageOf(0).KeyDim) // of every token
	key[0] = float32(group) / 4
	for i := range s.KVHeads(0) * s.GroupTokens {
		kvpage.PutK(s.PageOf(0), b[i/s.GroupTokens*s.HeadBytes(0):][:s.HeadBytes(0)], i%s.GroupTokens, key)
	}
	return Record{Key: Key{Seq: seq, Layer: layer, Group: group}, Data: b}
}

func TestCSDStore(t *testing.T) {
	drive, ctx, shape := newCSDDrive(t), context.Background(), csdShape()
	c, err := OpenCSD(ctx, drive.socket, shape, CSDOptions{Codes: csdshim.CodesInt8, Clock: clock.NewJumping()})
	if err != nil {
		t.Fatal(err)
	}
	var recs []Record
	for seq := range uint64(2) {
		for g := range int32(5) {
			recs = append(recs, csdRecord(shape, seq, 1, g))
		}
	}
	if err := c.Write(ctx, recs); err != nil {
		t.Fatal(err)
	}
	if st := c.Stats(); st.UsedBytes < int64(10*shape.RecordBytes(0)) || st.WrittenBytes != int64(10*shape.RecordBytes(0)) {
		t.Errorf("stats %+v", st)
	}
	if err := c.SetScales(ctx, 0, 1, []float32{0.25, 0.25}); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		for _, r := range recs {
			got := Record{Key: r.Key, Data: make([]byte, len(r.Data))}
			half := Record{Key: r.Key, Part: Part{First: 1, N: 1}, Data: make([]byte, len(r.Data)/2)}
			if err := c.Read(ctx, []Record{got, half}); err != nil || !bytes.Equal(got.Data, r.Data) || !bytes.Equal(half.Data, r.Data[len(r.Data)/2:]) {
				t.Fatalf("%s: %v: %v", when, r.Key, err)
			}
		}
	}
	check("written")
	if err := c.Place(ctx, 0, []int32{0, 1, 2, 3}, true); err != nil {
		t.Fatal(err)
	}
	q := &csdshim.Query{Codes: csdshim.CodesInt8, Int8: make([]int8, 64), Block: 32}
	q.Int8[0], q.Int8[32] = 1, 2
	scored := 0
	if _, err := c.Score(ctx, 0, 1, q, func(b *csdshim.Block) error {
		for i, p := range b.Positions {
			scored++
			if b.Scores[i] != float32(3*(p/16)) {
				t.Errorf("position %d: score %v", p, b.Scores[i])
			}
		}
		return nil
	}); err != nil || scored != 76 {
		t.Errorf("%d tokens scored, want 76 cold ones: %v", scored, err)
	}
	drive.stop()
	if err := c.Read(ctx, recs[:1]); !errors.Is(err, csdshim.ErrLost) {
		t.Errorf("read from a drive that has gone: %v", err)
	}
	drive.start()
	check("after the drive was restarted")
	if err := c.Drop(0); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(ctx, []Record{csdRecord(shape, 0, 1, 3)}); !errors.Is(err, ErrMissing) {
		t.Errorf("a dropped record: %v", err)
	}
	for g := range int32(4000) {
		if err = c.Write(ctx, []Record{csdRecord(shape, 9, 0, g)}); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("a full drive: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Read(ctx, recs[:1]); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
}

func TestCSDRefuses(t *testing.T) {
	s := csdShape()
	s.GroupTokens = 32
	if _, err := OpenCSD(context.Background(), "nowhere", s, CSDOptions{}); !errors.Is(err, ErrShape) {
		t.Errorf("groups of 32: %v", err)
	}
	if _, err := OpenCSD(context.Background(), filepath.Join(t.TempDir(), "s"), csdShape(), CSDOptions{}); !errors.Is(err, csdshim.ErrLost) {
		t.Errorf("no drive: %v", err)
	}
}
