package simulate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"terrace/csdshim"
	"terrace/internal/clock"
	"terrace/internal/vfs"
	"terrace/offload"
)

// localDrive is csdshim's drive as a store of records that scores keys, called in this process: the drive's own flash, translation layer,
// scoring engine and times, on the clock that the caller runs on. What a socket would carry crosses the profile's link.
type localDrive struct {
	drive *csdshim.Drive
	s     *csdshim.Session
	shape offload.Shape
	wire  csdshim.Shape
	open  map[uint64]bool
	stats offload.Stats
}

// newLocalDrive opens a drive in memory that holds capacity bytes.
func newLocalDrive(p csdshim.Profile, shape offload.Shape, codes csdshim.Codes, capacity int64, c clock.Clock) (*localDrive, error) {
	d, err := csdshim.OpenDrive("drive", csdshim.Options{Profile: p, CapacityBytes: capacity, Clock: c, NoSync: true, FS: vfs.NewMem(4*capacity + 64<<20)})
	if err != nil {
		return nil, err
	}
	return &localDrive{drive: d, s: d.Connect([16]byte{1}, 0), shape: shape, open: map[uint64]bool{},
		wire: csdshim.Shape{Layers: len(shape.Layers), KVHeads: shape.KVHeads(0), Page: shape.PageOf(0), Codes: codes, Fingerprint: shape.Fingerprint}}, nil
}

func (l *localDrive) Name() string          { return "csd" }
func (l *localDrive) Shape() offload.Shape  { return l.shape }
func (l *localDrive) Stats() offload.Stats  { return l.stats }
func (l *localDrive) IndexBytes(int) int64  { return 0 }
func (l *localDrive) Trim()                 {}
func (l *localDrive) ResetPeak()            { l.stats.PeakBytes = l.stats.UsedBytes }
func (l *localDrive) Scores() csdshim.Codes { return l.wire.Codes }
func (l *localDrive) Drop(seq uint64) error { delete(l.open, seq); return l.s.Drop(seq, 0) }

// Identity says that the drive takes its profile's time: it runs on its host's clock.
func (l *localDrive) Identity() csdshim.Identity {
	id := l.drive.Identity()
	id.Clock = "real"
	return id
}

func (l *localDrive) Close() error {
	l.s.Disconnect()
	return l.drive.Close()
}

// groups are records of one sequence, which is open afterwards.
func (l *localDrive) groups(recs []offload.Record) (seq uint64, list []csdshim.Group, err error) {
	for _, r := range recs {
		if r.Part != (offload.Part{}) || r.Key.Seq != recs[0].Key.Seq {
			return 0, nil, fmt.Errorf("simulate: parts of records, or records of several sequences, in one transfer: %w", errors.ErrUnsupported)
		}
		list = append(list, csdshim.Group{Layer: int(r.Key.Layer), Index: int(r.Key.Group), Data: r.Data})
	}
	return recs[0].Key.Seq, list, l.sequence(recs[0].Key.Seq)
}

func (l *localDrive) sequence(seq uint64) error {
	if l.open[seq] {
		return nil
	}
	l.open[seq] = true
	return l.s.OpenSequence(seq, l.wire)
}

func (l *localDrive) Write(ctx context.Context, recs []offload.Record) error {
	seq, list, err := l.groups(recs)
	if err == nil {
		_, err = l.s.Write(ctx, seq, list)
	}
	l.stats.Writes++
	l.stats.WrittenBytes += int64(len(recs) * l.shape.RecordBytes(0))
	return err
}

func (l *localDrive) Read(ctx context.Context, recs []offload.Record) error {
	seq, list, err := l.groups(recs)
	if err == nil {
		_, err = l.s.Read(ctx, seq, list)
	}
	l.stats.Reads++
	l.stats.ReadBytes += int64(len(recs) * l.shape.RecordBytes(0))
	return err
}

func (l *localDrive) SetScales(ctx context.Context, seq uint64, layer int, scales []float32) error {
	err := l.sequence(seq)
	if err == nil {
		_, err = l.s.SetScales(ctx, seq, layer, scales)
	}
	return err
}

// Score calls each with the drive's blocks when the last of them has come.
func (l *localDrive) Score(ctx context.Context, seq uint64, layer int, q *csdshim.Query, each func(*csdshim.Block) error) (csdshim.Timing, error) {
	var blocks []csdshim.Block
	t, err := l.s.Score(ctx, seq, layer, q, func(b *csdshim.Block, _ time.Duration) error {
		blocks = append(blocks, csdshim.Block{Positions: append([]int32(nil), b.Positions...), Scores: append([]float32(nil), b.Scores...)})
		return nil
	})
	for i := 0; err == nil && i < len(blocks); i++ {
		err = each(&blocks[i])
	}
	t.MeasuredNs = 0
	return t, err
}

// ScoreMany asks several questions in one message.
func (l *localDrive) ScoreMany(ctx context.Context, questions []csdshim.Question) {
	for i := range questions {
		if err := l.sequence(questions[i].Seq); err != nil {
			for j := range questions {
				questions[j].Done(csdshim.Timing{}, err)
			}
			return
		}
	}
	modelledAlone(questions)
	l.s.ScoreMany(ctx, questions)
}

// modelledAlone keeps what this process takes to score, which is no part of the model, from who asks.
func modelledAlone(questions []csdshim.Question) {
	for i := range questions {
		done := questions[i].Done
		questions[i].Done = func(t csdshim.Timing, err error) {
			t.MeasuredNs = 0
			done(t, err)
		}
	}
}

func (l *localDrive) Gather(ctx context.Context, seq uint64, layer int, tokens []int32, dst []byte) (csdshim.Timing, error) {
	t, err := l.s.Gather(ctx, seq, layer, tokens, dst)
	l.stats.Reads++
	l.stats.ReadBytes += int64(t.LinkBytes)
	return t, err
}

func (l *localDrive) Place(_ context.Context, seq uint64, tokens []int32, hot bool) error {
	return l.s.Place(seq, tokens, hot)
}
