package simulate

import (
	"context"
	"fmt"
	"time"

	"terrace/csdshim"
	"terrace/csdshim/attend"
	"terrace/csdshim/profiles"
	"terrace/internal/vfs"
	"terrace/offload"
)

// Drive is a computational storage drive as it says of itself, and what asking it takes of this host, measured at its socket: a message
// and its answer, and where the drive's process computes longer than its profile says, that.
type Drive struct {
	Profile       string  `json:"profile"`
	Keys          string  `json:"keys"`
	CapacityBytes int64   `json:"capacity_bytes"`
	Message       float64 `json:"message_s"` // an empty question and its answer; 0 = what the profile says

	Fetch       float64 `json:"fetch_s"` // reading records, or tokens, in one message: of the drive's process, one after another
	FetchByte   float64 `json:"fetch_s_per_byte"`
	FetchAlone  float64 `json:"fetch_latency_s"` // after that
	Attend      float64 `json:"attend_s"`        // attention of a layer and sequence, one after another
	AttendToken float64 `json:"attend_s_per_token"`
}

// maxDriveBytes is the most that a modelled drive holds.
const maxDriveBytes = 4 << 30

// Dial opens the host's drive in this process, on the host's clock: an engine.Options.Machine.Dial.
func (p *Paced) Dial(_ context.Context, _ string, o csdshim.ClientOptions) (offload.Link, error) {
	m := p.host.Drive
	if m == nil {
		return nil, fmt.Errorf("%w: the host has no drive", ErrArgument)
	}
	profile, err := profiles.Load(m.Profile)
	if err != nil {
		return nil, err
	}
	keys := csdshim.KeysDDR
	if m.Keys == csdshim.KeysNAND.String() {
		keys = csdshim.KeysNAND
	}
	capacity := min(m.CapacityBytes, maxDriveBytes)
	d, err := csdshim.OpenDrive("drive", csdshim.Options{Profile: profile, Keys: keys, CapacityBytes: capacity, Clock: p.Clock, NoSync: true, FS: vfs.NewMem(4*capacity + 64<<20), Attention: attend.New()})
	if err != nil {
		return nil, err
	}
	empty := modelled((2*profile.Link.LatencyUs + profile.Engine.CommandUs) / 1e6)
	return &driveLink{Session: d.Connect([16]byte{1}, 0), drive: d, p: p, empty: empty}, nil
}

// driveLink is a connection to a drive in this process, which takes the time of one to a drive behind a socket.
type driveLink struct {
	*csdshim.Session
	drive  *csdshim.Drive
	p      *Paced
	empty  time.Duration // what a question that asks nothing takes by the profile
	closed bool
}

// serves has the drive's process do what takes some seconds, behind what it was asked before, and says when it will be done.
func (l *driveLink) serves(seconds float64) time.Duration {
	l.p.drive = max(l.p.drive, l.p.Clock.Now()) + modelled(seconds)
	return l.p.drive
}

// until waits for a time, where the drive's model has not taken that long.
func (l *driveLink) until(at time.Duration) {
	_ = l.p.Clock.Sleep(context.Background(), at-l.p.Clock.Now())
}

func (l *driveLink) message() { l.until(l.serves(l.p.host.Drive.Message)) }

// fetches has the process fetch some bytes.
func (l *driveLink) fetches(bytes int) time.Duration {
	d := l.p.host.Drive
	return l.serves(d.Fetch+d.FetchByte*float64(bytes)) + modelled(d.FetchAlone)
}

func (l *driveLink) Identity() csdshim.Identity { return l.drive.Identity() }
func (l *driveLink) Owner() [16]byte            { return [16]byte{1} }
func (l *driveLink) Abandon()                   {}

// Err implements offload.Link.
func (l *driveLink) Err() error {
	if l.closed {
		return csdshim.ErrLost
	}
	return nil
}

// Close implements offload.Link.
func (l *driveLink) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	l.Disconnect()
	return l.drive.Close()
}

// Stats implements offload.Link.
func (l *driveLink) Stats(context.Context) (csdshim.Stats, error) {
	if l.message(); l.p.host.Drive.Message == 0 {
		l.until(l.p.Clock.Now() + l.empty)
	}
	return l.drive.Stats(), nil
}

// OpenSequence implements offload.Link.
func (l *driveLink) OpenSequence(_ context.Context, seq uint64, shape csdshim.Shape) error {
	l.message()
	return l.Session.OpenSequence(seq, shape)
}

// WriteGroups implements offload.Link.
func (l *driveLink) WriteGroups(ctx context.Context, seq uint64, groups []csdshim.Group) (csdshim.Timing, error) {
	l.message()
	return l.Write(ctx, seq, groups)
}

// Fetch implements offload.Link.
func (l *driveLink) Fetch(ctx context.Context, seq uint64, groups []csdshim.Group) (csdshim.Timing, error) {
	bytes := 0
	for i := range groups {
		bytes += len(groups[i].Data)
	}
	done := l.fetches(bytes)
	t, err := l.Read(ctx, seq, groups)
	l.until(done)
	return t, err
}

// Gather implements offload.Link.
func (l *driveLink) Gather(ctx context.Context, seq uint64, layer int, positions []int32, dst []byte) (csdshim.Timing, error) {
	done := l.fetches(len(dst))
	t, err := l.Session.Gather(ctx, seq, layer, positions, dst)
	l.until(done)
	return t, err
}

// SetScales implements offload.Link.
func (l *driveLink) SetScales(ctx context.Context, seq uint64, layer int, scales []float32) (csdshim.Timing, error) {
	l.message()
	return l.Session.SetScales(ctx, seq, layer, scales)
}

// Score implements offload.Link: the question is one of several of which there are no others.
func (l *driveLink) Score(ctx context.Context, seq uint64, layer int, q *csdshim.Query, each func(*csdshim.Block) error) (t csdshim.Timing, err error) {
	l.ScoreMany(ctx, []csdshim.Question{{Seq: seq, Layer: layer, Query: q, Each: each, Done: func(took csdshim.Timing, failed error) { t, err = took, failed }}})
	return t, err
}

// ScoreMany implements offload.Link.
func (l *driveLink) ScoreMany(ctx context.Context, questions []csdshim.Question) {
	l.message()
	modelledAlone(questions)
	l.Session.ScoreMany(ctx, questions)
}

// Promote implements offload.Link.
func (l *driveLink) Promote(_ context.Context, seq uint64, positions []int32) error {
	l.message()
	return l.Place(seq, positions, true)
}

// Demote implements offload.Link.
func (l *driveLink) Demote(_ context.Context, seq uint64, positions []int32) error {
	l.message()
	return l.Place(seq, positions, false)
}

// Drop implements offload.Link.
func (l *driveLink) Drop(_ context.Context, seq uint64, from int) error {
	l.message()
	return l.Session.Drop(seq, from)
}

// OpenAttended implements offload.Link.
func (l *driveLink) OpenAttended(_ context.Context, seq uint64, shape csdshim.AttendShape) error {
	l.message()
	return l.Session.OpenAttended(seq, shape)
}

// Append implements offload.Link.
func (l *driveLink) Append(ctx context.Context, _ *csdshim.AttendShape, m *csdshim.Tail) (csdshim.Timing, csdshim.Work, error) {
	l.message()
	return l.Session.Append(ctx, m)
}

// Attend implements offload.Link.
func (l *driveLink) Attend(ctx context.Context, _ *csdshim.AttendShape, m *csdshim.AttendQuery) (csdshim.Timing, csdshim.Attended, error) {
	done := l.serves(l.p.host.Drive.Attend + l.p.host.Drive.AttendToken*float64(m.Tail.At+1))
	t, out, err := l.Session.Attend(ctx, m)
	l.until(done)
	return t, out, err
}
