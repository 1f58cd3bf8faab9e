package offload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"terrace/csdshim"
)

// fakeDrive is a drive in this process: what it was told to keep, and which of its next calls fail. Its connections are fakeLinks.
type fakeDrive struct {
	journal
	id csdshim.Identity

	mu     sync.Mutex
	down   int     // dials to refuse; -1 = all
	fates  []error // of the next calls that are no dial, in order; nil = it goes well
	broken bool    // a call that fails ends the connection before it is done; else behind it
	links  []*fakeLink
	shapes map[uint64]any // of open sequences, of all connections
	groups map[Key][]byte
	hot    map[uint64]map[int32]bool
	scales map[Key]int // by sequence and layer
	tokens map[Key]int // attended tokens by sequence and layer
}

func newFakeDrive(id csdshim.Identity) *fakeDrive {
	return &fakeDrive{id: id, shapes: map[uint64]any{}, groups: map[Key][]byte{}, hot: map[uint64]map[int32]bool{}, scales: map[Key]int{}, tokens: map[Key]int{}}
}

// fakeFates are what scripts say of calls.
var fakeFates = map[string]error{"": nil, "ok": nil, "lost": csdshim.ErrLost, "timeout": csdshim.ErrTimeout, "full": csdshim.ErrFull, "corrupt": csdshim.ErrCorrupt,
	"missing": csdshim.ErrNotFound, "request": csdshim.ErrRequest, "unsupported": csdshim.ErrUnsupported, "drive": csdshim.ErrDrive}

// dial connects, or is refused.
func (d *fakeDrive) dial(_ context.Context, socket string, o csdshim.ClientOptions) (Link, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down != 0 {
		d.down = max(d.down-1, -1)
		d.print("  dial %s: refused", socket)
		return nil, fmt.Errorf("fake: %w", csdshim.ErrRefused)
	}
	owner := o.Owner
	if owner == [16]byte{} {
		owner[0] = 7
	}
	d.print("  dial %s as %d", socket, owner[0])
	l := &fakeLink{d: d, owner: owner, opened: map[uint64]bool{}}
	d.links = append(d.links, l)
	return l, nil
}

// kill ends all connections from the drive's side; a restarted drive has forgotten who is hot.
func (d *fakeDrive) kill(restart bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.links {
		l.ended = true
	}
	d.links = nil
	if restart {
		clear(d.hot)
	}
}

// fakeLink is a connection to a fakeDrive.
type fakeLink struct {
	d      *fakeDrive
	owner  [16]byte
	opened map[uint64]bool
	ended  bool
}

func (l *fakeLink) Identity() csdshim.Identity { return l.d.id }
func (l *fakeLink) Owner() [16]byte            { return l.owner }

func (l *fakeLink) Err() error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if l.ended {
		return csdshim.ErrLost
	}
	return nil
}

func (l *fakeLink) Abandon() {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.ended = true
}

// Close drops what the owner stored.
func (l *fakeLink) Close() error {
	if err := l.call("close", nil); err != nil {
		return err
	}
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.ended = true
	clear(l.d.groups)
	clear(l.d.shapes)
	return nil
}

// call does what a request asks for, unless its fate is another; do may be nil.
func (l *fakeLink) call(what string, do func() error) error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	var fate error
	if l.ended {
		fate = csdshim.ErrLost
	} else if len(l.d.fates) > 0 {
		fate, l.d.fates = l.d.fates[0], l.d.fates[1:]
	}
	late := fate != nil && !l.d.broken && errors.Is(fate, csdshim.ErrLost) && !l.ended // the answer is lost, not the request
	l.ended = l.ended || errors.Is(fate, csdshim.ErrLost)
	err := fate
	if do != nil && (fate == nil || late) {
		err = errors.Join(do(), fate)
	}
	l.d.print("  %s: %s", what, outcome(err))
	if err != nil {
		return fmt.Errorf("fake: %w", err)
	}
	return nil
}

// at is call of something on a sequence, which must be open on the connection.
func (l *fakeLink) at(seq uint64, what string, do func() error) error {
	return l.call(fmt.Sprintf("%s of %d", what, seq), func() error {
		if !l.opened[seq] {
			return csdshim.ErrRequest
		}
		return do()
	})
}

func (l *fakeLink) Stats(context.Context) (csdshim.Stats, error) {
	return csdshim.Stats{}, l.call("stats", nil)
}

func (l *fakeLink) open(seq uint64, shape any) error {
	return l.call(fmt.Sprintf("open %d", seq), func() error {
		if was, ok := l.d.shapes[seq]; ok && was != shape {
			return csdshim.ErrRequest
		}
		l.d.shapes[seq], l.opened[seq] = shape, true
		return nil
	})
}

func (l *fakeLink) OpenSequence(_ context.Context, seq uint64, shape csdshim.Shape) error {
	return l.open(seq, shape)
}

func (l *fakeLink) OpenAttended(_ context.Context, seq uint64, shape csdshim.AttendShape) error {
	return l.open(seq, shape)
}

// named are groups in a line.
func named(groups []csdshim.Group) string {
	var b bytes.Buffer
	for i, g := range groups {
		if i == 0 || g.Layer != groups[i-1].Layer {
			fmt.Fprintf(&b, " layer %d group", g.Layer)
		}
		fmt.Fprintf(&b, " %d", g.Index)
	}
	return b.String()
}

func (l *fakeLink) WriteGroups(_ context.Context, seq uint64, groups []csdshim.Group) (t csdshim.Timing, err error) {
	return t, l.at(seq, "write"+named(groups), func() error {
		for _, g := range groups {
			l.d.groups[Key{seq, int32(g.Layer), int32(g.Index)}] = bytes.Clone(g.Data)
		}
		return nil
	})
}

func (l *fakeLink) Fetch(_ context.Context, seq uint64, groups []csdshim.Group) (t csdshim.Timing, err error) {
	return t, l.at(seq, "fetch"+named(groups), func() error {
		for _, g := range groups {
			b, ok := l.d.groups[Key{seq, int32(g.Layer), int32(g.Index)}]
			if !ok {
				return csdshim.ErrNotFound
			}
			copy(g.Data, b)
		}
		return nil
	})
}

// Gather gives token p the byte p, all over.
func (l *fakeLink) Gather(_ context.Context, seq uint64, layer int, positions []int32, dst []byte) (t csdshim.Timing, err error) {
	t.LinkBytes = uint64(len(positions))
	return t, l.at(seq, fmt.Sprintf("gather %v of layer %d", positions, layer), func() error {
		for i := range dst {
			dst[i] = byte(len(positions))
		}
		return nil
	})
}

func (l *fakeLink) SetScales(_ context.Context, seq uint64, layer int, scales []float32) (t csdshim.Timing, err error) {
	return t, l.at(seq, fmt.Sprintf("scales of layer %d", layer), func() error {
		l.d.scales[Key{Seq: seq, Layer: int32(layer)}] = len(scales)
		return nil
	})
}

// blocks are the cold tokens of a layer in blocks of four; a token's score is its position.
func (d *fakeDrive) blocks(seq uint64, layer int) (out []csdshim.Block) {
	var cold []int32
	for _, k := range slices.SortedFunc(maps.Keys(d.groups), func(a, b Key) int { return int(a.Group - b.Group) }) {
		for i := range int32(4) {
			if p := k.Group*16 + i; k.Seq == seq && int(k.Layer) == layer && !d.hot[seq][p] {
				cold = append(cold, p)
			}
		}
	}
	for part := range slices.Chunk(cold, 4) {
		b := csdshim.Block{Positions: part}
		for _, p := range part {
			b.Scores = append(b.Scores, float32(p))
		}
		out = append(out, b)
	}
	return out
}

// Score answers block after block; where its fate is an error, after the first one.
func (l *fakeLink) Score(_ context.Context, seq uint64, layer int, _ *csdshim.Query, each func(*csdshim.Block) error) (t csdshim.Timing, err error) {
	l.d.mu.Lock()
	var blocks []csdshim.Block
	if l.opened[seq] {
		blocks = l.d.blocks(seq, layer)
	}
	l.d.mu.Unlock()
	said := l.at(seq, fmt.Sprintf("score layer %d", layer), func() error { return nil })
	for i := range blocks {
		if said != nil && i > 0 {
			break
		}
		if err := each(&blocks[i]); err != nil {
			return t, err
		}
	}
	return t, said
}

// ScoreMany answers one question after another.
func (l *fakeLink) ScoreMany(ctx context.Context, questions []csdshim.Question) {
	for _, q := range questions {
		q.Done(l.Score(ctx, q.Seq, q.Layer, q.Query, q.Each))
	}
}

func (l *fakeLink) place(seq uint64, positions []int32, hot bool) error {
	return l.at(seq, fmt.Sprintf("place %v hot=%v", positions, hot), func() error {
		if l.d.hot[seq] == nil {
			l.d.hot[seq] = map[int32]bool{}
		}
		for _, p := range positions {
			l.d.hot[seq][p] = hot
		}
		return nil
	})
}

func (l *fakeLink) Promote(_ context.Context, seq uint64, positions []int32) error {
	return l.place(seq, positions, true)
}

func (l *fakeLink) Demote(_ context.Context, seq uint64, positions []int32) error {
	return l.place(seq, positions, false)
}

func (l *fakeLink) Drop(_ context.Context, seq uint64, from int) error {
	return l.call(fmt.Sprintf("drop %d", seq), func() error {
		delete(l.d.shapes, seq)
		delete(l.opened, seq)
		maps.DeleteFunc(l.d.groups, func(k Key, _ []byte) bool { return k.Seq == seq })
		maps.DeleteFunc(l.d.tokens, func(k Key, _ int) bool { return k.Seq == seq })
		return nil
	})
}

// tail counts tokens; those that are there already change nothing.
func (l *fakeLink) tail(m *csdshim.Tail) error {
	k := Key{Seq: m.Seq, Layer: int32(m.Layer)}
	if m.At > l.d.tokens[k] {
		return csdshim.ErrRequest
	}
	l.d.tokens[k] = max(l.d.tokens[k], m.At+m.Tokens)
	return nil
}

func (l *fakeLink) Append(_ context.Context, shape *csdshim.AttendShape, m *csdshim.Tail) (t csdshim.Timing, w csdshim.Work, err error) {
	w.PagesProgrammed, t.LinkNs = 1, 10
	return t, w, l.at(m.Seq, fmt.Sprintf("append %d tokens at %d of layer %d, %d heads, %d and %d bytes", m.Tokens, m.At, m.Layer, shape.Heads, len(m.Keys), len(m.Values)),
		func() error { return l.tail(m) })
}

// Attend gives every output the first byte of the head's value of the newest token, plus the query head's first number.
func (l *fakeLink) Attend(_ context.Context, shape *csdshim.AttendShape, m *csdshim.AttendQuery) (t csdshim.Timing, a csdshim.Attended, err error) {
	t.EngineNs = 5
	a.Work.TokensAttended = uint64(m.Tail.At + 1)
	err = l.at(m.Tail.Seq, fmt.Sprintf("attend at %d of layer %d, %d queries", m.Tail.At, m.Tail.Layer, len(m.Q)/shape.KeyDim), func() error {
		group := len(m.Q) / shape.KeyDim / shape.Heads
		for q := range len(m.Q) / shape.KeyDim {
			v := float32(m.Tail.Values[q/group*shape.ValueRowBytes()])
			for range shape.ValueDim {
				a.Out = append(a.Out, v+m.Q[q*shape.KeyDim])
			}
		}
		if m.Traced {
			a.Stages = []csdshim.Stage{{Unit: csdshim.UnitLink, From: 0, To: uint64(time.Microsecond)}, {Unit: csdshim.UnitNAND, From: 10, To: 20}, {Unit: csdshim.UnitNAND, Lane: 1, From: 20, To: 30}}
		}
		return l.tail(&m.Tail)
	})
	return t, a, err
}
