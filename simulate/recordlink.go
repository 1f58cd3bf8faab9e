package simulate

import (
	"context"
	"time"

	"terrace/csdshim"
	"terrace/offload"
)

// Dial records what is fetched from the drives that it dials, and their attention; nil = csdshim.Dial.
func (r *Recording) Dial(dial offload.Dial) offload.Dial {
	if dial == nil {
		dial = func(ctx context.Context, socket string, o csdshim.ClientOptions) (offload.Link, error) {
			return csdshim.Dial(ctx, socket, o)
		}
	}
	return func(ctx context.Context, socket string, o csdshim.ClientOptions) (offload.Link, error) {
		link, err := dial(ctx, socket, o)
		if err != nil {
			return nil, err
		}
		return recordedLink{link, r}, nil
	}
}

type recordedLink struct {
	offload.Link
	r *Recording
}

func (l recordedLink) note(kind string, n, bytes int, begun time.Duration) {
	l.r.add(kind, n, int64(bytes), begun, l.r.clock.Now())
}

// Fetch implements offload.Link.
func (l recordedLink) Fetch(ctx context.Context, seq uint64, groups []csdshim.Group) (csdshim.Timing, error) {
	bytes := 0
	for i := range groups {
		bytes += len(groups[i].Data)
	}
	defer l.note("fetch", len(groups), bytes, l.r.clock.Now())
	return l.Link.Fetch(ctx, seq, groups)
}

// Gather implements offload.Link.
func (l recordedLink) Gather(ctx context.Context, seq uint64, layer int, positions []int32, dst []byte) (csdshim.Timing, error) {
	defer l.note("fetch", len(positions), len(dst), l.r.clock.Now())
	return l.Link.Gather(ctx, seq, layer, positions, dst)
}

// Attend implements offload.Link.
func (l recordedLink) Attend(ctx context.Context, shape *csdshim.AttendShape, m *csdshim.AttendQuery) (csdshim.Timing, csdshim.Attended, error) {
	defer l.note("answer", m.Tail.At+1, 0, l.r.clock.Now())
	return l.Link.Attend(ctx, shape, m)
}
