package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// Row is a resource: one line of the timeline.
type Row uint8

// The rows, in the order in which they are shown.
const (
	Compute     Row = iota // the model's layers
	Score                  // scoring of cold keys on the host
	Read                   // transfer lower tier > host
	Write                  // transfer host > lower tier
	CSD                    // the drive's own work: scoring, fetching
	Wait                   // compute stands still for one of the others
	Device                 // programs on the backend's device
	Up                     // transfer host > device
	Down                   // transfer device > host
	DriveLink              // of drives that attend, modelled: queries down, outputs up
	DriveNAND              // their flash channels
	DriveEngine            // the stages of their engines
	rows
)

var rowNames = [rows]string{"compute", "score", "transfer storage>host", "transfer host>storage", "csd", "wait",
	"device compute", "transfer host>device", "transfer device>host", "drive link (modelled)", "drive NAND channels (modelled)", "drive engine (modelled)"}

// String is the row's name in the timeline.
func (r Row) String() string { return rowNames[r] }

// bufferedEvents is how many spans are held before they are written.
const bufferedEvents = 2048

type event struct {
	row        Row
	lane       int32  // of Lane, from 1; 0: the row itself
	layer      int32  // -1: none
	name, by   string // by: the backend that did it; empty = not said
	start, end time.Duration
	bytes      int64
}

// Recorder collects spans and writes them to one writer. The nil Recorder does nothing.
type Recorder struct {
	now func() time.Duration

	mu     sync.Mutex
	w      *bufio.Writer
	err    error
	buf    []event
	closed bool
	busy   [rows]time.Duration
	bytes  [rows]int64
	spans  [rows]int64
	shared [rows]period
	lanes  map[string]int32
	line   []byte
}

// period is a row at work on several things at once.
type period struct {
	under int // things under way
	first event
}

// New starts a timeline on w, in Chrome's trace event format; now is the clock, whose times are spans' times.
func New(w io.Writer, now func() time.Duration) *Recorder {
	r := &Recorder{now: now, w: bufio.NewWriterSize(w, 64<<10), buf: make([]event, 0, bufferedEvents)}
	r.puts(`{"displayTimeUnit":"ms","traceEvents":[` + "\n" + `{"ph":"M","pid":1,"name":"process_name","args":{"name":"terrace"}}`)
	for i, name := range rowNames {
		r.nameLine(i+1, name, i)
	}
	return r
}

// Span is work that has begun; End or EndBytes ends it. The zero Span (of a nil Recorder) does nothing.
type Span struct {
	r     *Recorder
	name  string
	by    string
	start time.Duration
	row   Row
	layer int32

	shared bool
}

// Now is the time on the timeline's clock.
func (r *Recorder) Now() time.Duration {
	if r == nil {
		return 0
	}
	return r.now()
}

// Span begins work on a row.
func (r *Recorder) Span(row Row, name string) Span { return r.Layer(row, name, -1) }

// Layer begins work on a row for a layer, whose number follows the name.
func (r *Recorder) Layer(row Row, name string, layer int) Span {
	if r == nil {
		return Span{}
	}
	return Span{r: r, name: name, start: r.now(), row: row, layer: int32(layer)}
}

// Shared begins work on a row that does several things at once: works that overlap are one span, from the first's beginning
// to the last's end, under the first's name and with the bytes of all.
func (r *Recorder) Shared(row Row, name string, layer int) Span {
	if r == nil {
		return Span{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.shared[row]
	if p.under++; p.under == 1 {
		p.first = event{row: row, layer: int32(layer), name: name, start: r.now()}
	}
	return Span{r: r, row: row, shared: true}
}

// By says which backend does the work.
func (s Span) By(backend string) Span {
	s.by = backend
	return s
}

// End ends the span now.
func (s Span) End() { s.EndBytes(0) }

// EndBytes ends the span now and says how many bytes it moved or read.
func (s Span) EndBytes(n int64) {
	switch {
	case s.r == nil:
	case s.shared:
		s.r.endShared(s.row, n)
	default:
		s.r.add(event{row: s.row, layer: s.layer, name: s.name, by: s.by, start: s.start, end: s.r.now(), bytes: n})
	}
}

// endShared ends one work of a row's period.
func (r *Recorder) endShared(row Row, bytes int64) {
	r.mu.Lock()
	p := &r.shared[row]
	p.first.bytes += bytes
	p.first.end = r.now()
	p.under--
	e, over := p.first, p.under == 0
	r.mu.Unlock()
	if over {
		r.add(e)
	}
}

// Add records a span whose times are known.
func (r *Recorder) Add(row Row, name string, start, end time.Duration, bytes int64) {
	if r != nil {
		r.add(event{row: row, layer: -1, name: name, start: start, end: end, bytes: bytes})
	}
}

// Lane records a span of one of a row's units, a flash channel say, whose times are known. Each unit has a line of its own, under
// its name, below the rows, so that units which work at once do not overlap; the row's totals count all of them.
func (r *Recorder) Lane(row Row, unit string, place int, name string, layer int, start, end time.Duration) {
	if r == nil {
		return
	}
	r.add(event{row: row, lane: r.lane(unit, place), layer: int32(layer), name: name, start: start, end: end})
}

// lane is the number of a unit's line, which begins when it is first asked for.
func (r *Recorder) lane(unit string, place int) int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, known := r.lanes[unit]
	if known || r.closed {
		return n
	}
	if r.lanes == nil {
		r.lanes = map[string]int32{}
	}
	n = int32(len(r.lanes)) + 1
	r.lanes[unit] = n
	r.nameLine(int(rows)+int(n), unit, int(rows)+place)
	return n
}

// nameLine names a line of the timeline and gives it its place.
func (r *Recorder) nameLine(tid int, name string, place int) {
	r.puts(fmt.Sprintf(",\n"+`{"ph":"M","pid":1,"tid":%d,"name":"thread_name","args":{"name":%q}}`, tid, name))
	r.puts(fmt.Sprintf(",\n"+`{"ph":"M","pid":1,"tid":%d,"name":"thread_sort_index","args":{"sort_index":%d}}`, tid, place))
}

func (r *Recorder) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.busy[e.row] += e.end - e.start
	r.bytes[e.row] += e.bytes
	r.spans[e.row]++
	r.buf = append(r.buf, e)
	if len(r.buf) == cap(r.buf) {
		r.write()
	}
}

// Totals of a row: the sum of its spans' times and bytes, and their number. Where a row's spans nest, the inner ones count
// twice.
type Totals struct {
	Busy  time.Duration
	Bytes int64
	Spans int64
}

// Totals sums up a row so far.
func (r *Recorder) Totals(row Row) Totals {
	if r == nil {
		return Totals{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return Totals{r.busy[row], r.bytes[row], r.spans[row]}
}

// Close writes what is left and the end of the timeline; later spans are not recorded. The error is the first that any
// write gave. The writer stays open.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.err
	}
	r.closed = true
	r.write()
	r.puts("\n]}\n")
	if err := r.w.Flush(); r.err == nil {
		r.err = err
	}
	if r.err != nil {
		r.err = fmt.Errorf("trace: the timeline is not whole: %w", r.err)
	}
	return r.err
}

func (r *Recorder) puts(s string) {
	if _, err := r.w.WriteString(s); r.err == nil {
		r.err = err
	}
}

// write formats the buffered events.
func (r *Recorder) write() {
	for i := range r.buf {
		e := &r.buf[i]
		b := append(r.line[:0], ",\n"+`{"ph":"X","pid":1,"tid":`...)
		tid := int64(e.row) + 1
		if e.lane > 0 {
			tid = int64(rows) + int64(e.lane)
		}
		b = strconv.AppendInt(b, tid, 10)
		b = append(b, `,"name":`...)
		b = quote(b, e.name, e.layer)
		b = append(b, `,"ts":`...)
		b = micros(b, e.start)
		b = append(b, `,"dur":`...)
		b = micros(b, max(0, e.end-e.start))
		r.line = append(arguments(b, e), '}')
		if _, err := r.w.Write(r.line); r.err == nil {
			r.err = err
		}
	}
	r.buf = r.buf[:0]
}

// arguments appends what else is known of an event.
func arguments(b []byte, e *event) []byte {
	if e.bytes == 0 && e.by == "" {
		return b
	}
	b = append(b, `,"args":{`...)
	if e.by != "" {
		b = quote(append(b, `"backend":`...), e.by, -1)
		if e.bytes != 0 {
			b = append(b, ',')
		}
	}
	if e.bytes != 0 {
		b = strconv.AppendInt(append(b, `"bytes":`...), e.bytes, 10)
	}
	return append(b, '}')
}

// quote appends a name and its layer as a JSON string; names that need escapes are rare.
func quote(b []byte, s string, layer int32) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\' {
			q, err := json.Marshal(s)
			if err != nil {
				q = []byte(`""`)
			}
			s = string(q[1 : len(q)-1])
			break
		}
	}
	b = append(append(b, '"'), s...)
	if layer >= 0 {
		b = strconv.AppendInt(append(b, ' '), int64(layer), 10)
	}
	return append(b, '"')
}

func micros(b []byte, d time.Duration) []byte {
	b = strconv.AppendInt(b, int64(d)/1000, 10)
	n := int64(d) % 1000
	return append(b, '.', byte('0'+n/100), byte('0'+n/10%10), byte('0'+n%10))
}
