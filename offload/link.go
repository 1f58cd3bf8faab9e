package offload

import (
	"context"

	"terrace/csdshim"
)

// Link is a connection to a drive: a *csdshim.Client, or a model of one in a simulation. csdshim.Client says what each call does.
type Link interface {
	Identity() csdshim.Identity
	Owner() [16]byte
	Err() error
	Abandon()
	Close() error

	Stats(ctx context.Context) (csdshim.Stats, error)
	OpenSequence(ctx context.Context, seq uint64, shape csdshim.Shape) error
	WriteGroups(ctx context.Context, seq uint64, groups []csdshim.Group) (csdshim.Timing, error)
	Fetch(ctx context.Context, seq uint64, groups []csdshim.Group) (csdshim.Timing, error)
	Gather(ctx context.Context, seq uint64, layer int, positions []int32, dst []byte) (csdshim.Timing, error)
	SetScales(ctx context.Context, seq uint64, layer int, scales []float32) (csdshim.Timing, error)
	Score(ctx context.Context, seq uint64, layer int, q *csdshim.Query, each func(*csdshim.Block) error) (csdshim.Timing, error)
	ScoreMany(ctx context.Context, questions []csdshim.Question)
	Promote(ctx context.Context, seq uint64, positions []int32) error
	Demote(ctx context.Context, seq uint64, positions []int32) error
	Drop(ctx context.Context, seq uint64, from int) error

	OpenAttended(ctx context.Context, seq uint64, shape csdshim.AttendShape) error
	Append(ctx context.Context, shape *csdshim.AttendShape, m *csdshim.Tail) (csdshim.Timing, csdshim.Work, error)
	Attend(ctx context.Context, shape *csdshim.AttendShape, m *csdshim.AttendQuery) (csdshim.Timing, csdshim.Attended, error)
}

// Dial connects to the drive at a socket; nil is csdshim.Dial.
type Dial func(ctx context.Context, socket string, o csdshim.ClientOptions) (Link, error)

func (d Dial) dial(ctx context.Context, socket string, o csdshim.ClientOptions) (Link, error) {
	if d != nil {
		return d(ctx, socket, o)
	}
	client, err := csdshim.Dial(ctx, socket, o)
	if err != nil {
		return nil, err
	}
	return client, nil
}
