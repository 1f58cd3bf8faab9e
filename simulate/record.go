package simulate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"terrace/internal/clock"
	"terrace/internal/vfs"
	"terrace/model"
)

// Event is one call that a recorded run has made, on the clock of its recording.
type Event struct {
	// Kind is a call of the backend in a decode step (embed, project, attend, finish, logits, guess), handing operations to the
	// device (hand), an operation from then until it was taken (read, write), or taking what was read: checksums, and what follows (take);
	// of a drive, fetching records or tokens (fetch), and its attention in a layer (answer).
	Kind  string        `json:"k"`
	At    time.Duration `json:"at_ns"`
	Took  time.Duration `json:"ns"`
	N     int           `json:"n,omitempty"` // rows; tokens and KV heads attended to; operations; records fetched; tokens that a drive attended over
	Bytes int64         `json:"b,omitempty"` // moved by the device, or fetched from a drive

	Polled bool `json:"p,omitempty"` // of a read or write: whoever took it asked for it, and was not woken
}

// RecordedRun is one case of a recording.
type RecordedRun struct {
	Policy   string   `json:"policy"`
	Tiers    []string `json:"tiers"` // none: all in memory
	Batch    int      `json:"batch"`
	Depth    int      `json:"depth"`
	Steps    int      `json:"steps"`
	StepS    float64  `json:"step_s"`             // on average
	OutsideS float64  `json:"outside_s"`          // of it, outside of the backend's calls and of waiting for the tier
	Host     *Host    `json:"hardware,omitempty"` // as far as it was measured without recording: what Learn leaves alone
	Events   []Event  `json:"-"`
}

// Recording is what runs took, call by call: Fit works out a host's rates from it. Its file has a line a
// run, in JSON, and behind each the run's events, a line each. It may be used by several goroutines.
type Recording struct {
	Runs  []RecordedRun
	clock clock.Clock

	mu     sync.Mutex
	on     bool
	limit  int  // of a run's events
	cut    bool // events were left out
	events []Event
}

// maxEvents bounds a run's events; Write refuses a recording of which more were left out.
const maxEvents = 4 << 20

// NewRecording is an empty one, by the machine's clock.
func NewRecording() *Recording { return &Recording{clock: clock.Real(), limit: maxEvents} }

// Begin starts a run: what was recorded since End is forgotten.
func (r *Recording) Begin() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on, r.events = true, nil
}

// End ends a run.
func (r *Recording) End(run RecordedRun) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = false
	run.Events = r.events
	r.events = nil
	r.Runs = append(r.Runs, run)
}

// Add takes the runs of other recordings over.
func (r *Recording) Add(runs ...*RecordedRun) {
	if r == nil {
		return
	}
	for _, run := range runs {
		r.Runs = append(r.Runs, *run)
	}
}

func (r *Recording) add(kind string, n int, bytes int64, from, to time.Duration) {
	r.note(Event{Kind: kind, At: from, Took: to - from, N: n, Bytes: bytes})
}

func (r *Recording) note(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.on:
	case len(r.events) == r.limit:
		r.cut = true
	default:
		r.events = append(r.events, e)
	}
}

// Backend records a backend's calls in decode steps, which Timed adds up.
func (r *Recording) Backend(b model.Backend) *Timed {
	t := NewTimed(b, nil)
	if r != nil {
		t.heard = func(kind string, n int, from, to time.Duration) { r.add(kind, n, 0, from, to) }
	}
	return t
}

// Disk records what is moved to and from a file system's files.
func (r *Recording) Disk(fs vfs.FS) vfs.FS {
	if r == nil {
		return fs
	}
	return recordedFS{fs, r}
}

type recordedFS struct {
	vfs.FS
	r *Recording
}

// OpenFile implements vfs.FS.
func (d recordedFS) OpenFile(name string, o vfs.OpenOptions) (vfs.File, error) {
	f, err := d.FS.OpenFile(name, o)
	if err != nil {
		return nil, err
	}
	return recordedFile{f, d.r}, nil
}

type recordedFile struct {
	vfs.File
	r *Recording
}

// NewEngine implements vfs.Engined.
func (f recordedFile) NewEngine(depth int) vfs.Engine {
	e, _ := vfs.NewEngine(f.File, depth, true)
	return &recordedEngine{Engine: e, r: f.r}
}

type recordedEngine struct {
	vfs.Engine
	r    *Recording
	asks atomic.Int32 // callers of Poll
}

// Poll implements vfs.Engine.
func (e *recordedEngine) Poll() {
	e.asks.Add(1)
	defer e.asks.Add(-1)
	e.Engine.Poll()
}

// Start implements vfs.Engine.
func (e *recordedEngine) Start(ios []*vfs.IO) {
	begun, bytes := e.r.clock.Now(), int64(0)
	for _, op := range ios {
		bytes += int64(op.Bytes())
		e.listen(op, begun)
	}
	n := len(ios) // the engine owns the list from here on
	e.Engine.Start(ios)
	e.r.add("hand", n, bytes, begun, e.r.clock.Now())
}

// listen records when an operation is taken, and what that takes.
func (e *recordedEngine) listen(op *vfs.IO, begun time.Duration) {
	done, kind, bytes := op.Done, "read", int64(op.Bytes())
	if op.Write {
		kind = "write"
	}
	op.Done = func(op *vfs.IO) {
		op.Done = done // whoever starts it again records it again
		ended, polled := e.r.clock.Now(), e.asks.Load() > 0
		done(op)
		e.r.note(Event{Kind: kind, At: begun, Took: ended - begun, N: 1, Bytes: bytes, Polled: polled})
		if !op.Write {
			e.r.add("take", 1, bytes, ended, e.r.clock.Now())
		}
	}
}

// Write writes the recording's file. ErrRecording where a run had more events than a recording holds.
func (r *Recording) Write(w io.Writer) error {
	if r.cut {
		return fmt.Errorf("%w: a run has more than %d events: take fewer tokens or repeats", ErrRecording, r.limit)
	}
	out := bufio.NewWriter(w)
	e := json.NewEncoder(out)
	for i := range r.Runs {
		if err := e.Encode(&r.Runs[i]); err != nil {
			return fmt.Errorf("simulate: recording: %w", err)
		}
		for j := range r.Runs[i].Events {
			if err := e.Encode(&r.Runs[i].Events[j]); err != nil {
				return fmt.Errorf("simulate: recording: %w", err)
			}
		}
	}
	return out.Flush()
}
