package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"time"

	"gonum.org/v1/gonum/mat"
)

// Device is what moving bytes to and from an SSD takes, in seconds: an operation so much, and so much more a byte.
type Device struct {
	Hand       float64 `json:"hand_s"` // of the core that hands it over
	HandByte   float64 `json:"hand_s_per_byte"`
	Op         float64 `json:"op_s"` // of the device, one after another
	Byte       float64 `json:"op_s_per_byte"`
	Latency    float64 `json:"latency_s"` // after that
	Wake       float64 `json:"wake_s"`    // and where nobody polls for it, until somebody has been woken
	Poll       float64 `json:"poll_s"`    // asking once what has ended
	Take       float64 `json:"take_s"`    // of the core that takes it: checksum, copy, and what is told of it
	TakeByte   float64 `json:"take_s_per_byte"`
	Beside     float64 `json:"beside_s"` // that a call of the backend takes longer for an operation that ends while it runs
	BesideByte float64 `json:"beside_s_per_byte"`
}

// Fitted is a hardware file that Fit has worked out: the host as measured and fitted, what policies' steps take in memory, and how
// good the fit is.
type Fitted struct {
	Host    Host      `json:"hardware"` // Compute is empty
	Compute []Compute `json:"compute"`  // by policy and batch
	Terms   []Term    `json:"fit"`
}

// Of is the host under a policy and a batch; false where the file has none.
func (f *Fitted) Of(policy string, batch int) (Host, bool) {
	h := f.Host
	for _, c := range f.Compute {
		if c.Policy == policy && c.Batch == batch {
			h.Compute = c
			return h, true
		}
	}
	return h, false
}

// Term is one of the fit's equations: how many events went in, how many seconds they took, and how many the fit gives them.
type Term struct {
	Name   string  `json:"name"`
	Events int     `json:"events"`
	Took   float64 `json:"took_s"`
	Gives  float64 `json:"gives_s"`
	Error  float64 `json:"error"` // root of the mean square of an event's error, over the mean of what an event took
}

// ErrRecording wraps errors of a recording that cannot be read or fitted.
var ErrRecording = errors.New("simulate: recording")

// ReadRecording reads what Recording.Write wrote.
func ReadRecording(in io.Reader) (*Recording, error) {
	r, d := NewRecording(), json.NewDecoder(in)
	d.DisallowUnknownFields()
	if err := d.Decode(&r.Host); err != nil {
		return nil, fmt.Errorf("%w: line 1: %w", ErrRecording, err)
	}
	for n := 2; ; n++ {
		var line struct {
			*RecordedRun
			*Event
		}
		err := d.Decode(&line)
		switch {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil:
			return nil, fmt.Errorf("%w: line %d: %w", ErrRecording, n, err)
		case line.RecordedRun != nil && line.Event == nil:
			r.Runs = append(r.Runs, *line.RecordedRun)
		case line.RecordedRun == nil && line.Event != nil && len(r.Runs) > 0:
			if e := line.Event; e.Took < 0 || e.At < 0 || e.N < 0 || e.Bytes < 0 {
				return nil, fmt.Errorf("%w: line %d: %+v, want nothing below 0", ErrRecording, n, *e)
			}
			last := &r.Runs[len(r.Runs)-1]
			last.Events = append(last.Events, *line.Event)
		default:
			return nil, fmt.Errorf("%w: line %d is neither a run nor an event of one", ErrRecording, n)
		}
	}
}

// equations are what happened (what) and how often each unknown went into it.
type equations struct {
	x [][]float64
	y []float64
}

func (q *equations) add(y float64, x ...float64) { q.x, q.y = append(q.x, x), append(q.y, y) }

// solve is the least sum of squares with no unknown below 0; those that would be are 0.
func (q *equations) solve(unknowns int) []float64 {
	in := make([]int, unknowns)
	for i := range in {
		in[i] = i
	}
	for len(in) > 0 {
		v := q.least(in)
		worst := -1
		for i := range v {
			if !(v[i] >= 0) && (worst < 0 || v[i] < v[worst]) {
				worst = i
			}
		}
		if worst < 0 {
			out := make([]float64, unknowns)
			for i, at := range in {
				out[at] = v[i]
			}
			return out
		}
		in = slices.Delete(in, worst, worst+1)
	}
	return make([]float64, unknowns)
}

// least is the least sum of squares for some unknowns, by gonum's Cholesky decomposition of the normal equations, columns scaled to
// length 1; NaN for an unknown that no event has, else for the last one where the events do not tell the unknowns apart.
func (q *equations) least(in []int) []float64 {
	out, scale := make([]float64, len(in)), make([]float64, len(in))
	for i := range in {
		for k := range q.x {
			scale[i] = math.Hypot(scale[i], q.x[k][in[i]])
		}
		if scale[i] == 0 {
			out[i] = math.NaN()
			return out
		}
	}
	normal, right := mat.NewSymDense(len(in), nil), mat.NewVecDense(len(in), nil)
	for k := range q.x {
		for i := range in {
			x := q.x[k][in[i]] / scale[i]
			right.SetVec(i, right.AtVec(i)+x*q.y[k])
			for j := i; j < len(in); j++ {
				normal.SetSym(i, j, normal.At(i, j)+x*q.x[k][in[j]]/scale[j])
			}
		}
	}
	var cholesky mat.Cholesky
	var v mat.VecDense
	if !cholesky.Factorize(normal) || cholesky.SolveVecTo(&v, right) != nil {
		out[len(in)-1] = math.NaN()
		return out
	}
	for i := range out {
		out[i] = v.AtVec(i) / scale[i]
	}
	return out
}

// term says how well a solution explains the equations.
func (q *equations) term(name string, solution []float64) Term {
	t := Term{Name: name, Events: len(q.y)}
	squares := 0.0
	for i, y := range q.y {
		gives := 0.0
		for j, x := range q.x[i] {
			gives += x * solution[j]
		}
		t.Took, t.Gives, squares = t.Took+y, t.Gives+gives, squares+(y-gives)*(y-gives)
	}
	if t.Took > 0 {
		t.Error = math.Sqrt(squares/float64(len(q.y))) / (t.Took / float64(len(q.y)))
	}
	return t
}

// Fit works a host's rates out of a recording: what handing over, moving and taking an operation costs, and how much longer the
// backend's calls take while operations end, against the same policy and batch in memory, which has to be in the recording too.
func Fit(r *Recording) (*Fitted, error) {
	var hand, take, device, beside equations
	memory := r.inMemory()
	for i := range r.Runs {
		run := &r.Runs[i]
		if len(run.Tiers) == 0 {
			continue
		}
		slices.SortStableFunc(run.Events, func(a, b Event) int { return int(a.At - b.At) })
		run.host(&hand, &take)
		run.beside(&beside, memory)
	}
	handing := hand.solve(2)
	for i := range r.Runs {
		if run := &r.Runs[i]; len(run.Tiers) > 0 {
			run.device(&device, handing)
		}
	}
	if len(device.y) == 0 {
		return nil, fmt.Errorf("%w: no read of a device in %d runs: want a case on an ssd tier", ErrRecording, len(r.Runs))
	}
	f, d := &Fitted{Host: r.Host}, &Device{}
	for _, x := range []struct {
		name string
		q    *equations
		to   []*float64
	}{{"handing over", &hand, []*float64{&d.Hand, &d.HandByte}}, {"taking", &take, []*float64{&d.Take, &d.TakeByte}},
		{"device", &device, []*float64{&d.Op, &d.Byte, &d.Latency}}, {"calls beside operations", &beside, []*float64{&d.Beside, &d.BesideByte}}} {
		v := x.q.solve(len(x.to))
		for i, to := range x.to {
			*to = v[i]
		}
		f.Terms = append(f.Terms, x.q.term(x.name, v))
	}
	if r.Host.Storage != nil {
		rates := deviceOf(r.Host)
		d.Poll, d.Wake = rates.Poll, rates.Wake
		d.Latency = max(0, d.Latency-d.Wake) // as it was seen from the host
	}
	f.Host.Device = d
	for i := range r.Runs {
		if c := r.Runs[i].Compute; c != nil {
			f.Compute = append(f.Compute, *c)
		}
	}
	return f, nil
}

// backendCalls are the kinds of events that are calls of the backend.
var backendCalls = []string{"embed", "project", "attend", "finish", "logits", "guess"}

// call names what is comparable in a run on tiers and in one in memory.
func (run *RecordedRun) call(e *Event) string {
	return fmt.Sprint(e.Kind, " ", run.Batch, " ", run.Policy)
}

// units are what a call's time is in proportion to.
func (e *Event) units() float64 {
	if e.Kind == "attend" {
		return float64(e.N)
	}
	return 1
}

// inMemory is what a unit of a call takes in memory, in seconds.
func (r *Recording) inMemory() map[string]float64 {
	took, units := map[string]float64{}, map[string]float64{}
	for i := range r.Runs {
		run := &r.Runs[i]
		if len(run.Tiers) > 0 {
			continue
		}
		for j := range run.Events {
			if e := &run.Events[j]; slices.Contains(backendCalls, e.Kind) {
				took[run.call(e)] += e.Took.Seconds()
				units[run.call(e)] += e.units()
			}
		}
	}
	for k := range took {
		took[k] /= max(1, units[k])
	}
	return took
}

func (e *Event) end() time.Duration { return e.At + e.Took }

// host collects what handing over and taking took; what was handed over while something was taken is not counted twice.
func (run *RecordedRun) host(hand, take *equations) {
	var under []*Event // taken
	own := map[*Event]time.Duration{}
	for i := range run.Events {
		e := &run.Events[i]
		switch e.Kind {
		case "take":
			under = append(under, e)
		case "hand":
			hand.add(e.Took.Seconds(), float64(e.N), float64(e.Bytes))
			under = slices.DeleteFunc(under, func(t *Event) bool { return t.end() < e.At })
			for j := len(under) - 1; j >= 0; j-- {
				if under[j].end() >= e.end() {
					own[under[j]] += e.Took
					break
				}
			}
		}
	}
	for i := range run.Events {
		if e := &run.Events[i]; e.Kind == "take" {
			take.add((e.Took - own[e]).Seconds(), 1, float64(e.Bytes))
		}
	}
}

// forever is later than anything.
const forever = time.Duration(math.MaxInt64)

// together are operations that were taken one right behind another.
const together = time.Microsecond

// device collects what the device took: of operations that were taken together, from when the first had been handed over, or those
// before had been taken, until the first of them was: the others had ended too.
func (run *RecordedRun) device(q *equations, handing []float64) {
	var moved []*Event
	for i := range run.Events {
		if e := &run.Events[i]; e.Kind == "read" || e.Kind == "write" {
			moved = append(moved, e)
		}
	}
	slices.SortStableFunc(moved, func(a, b *Event) int { return int(a.end() - b.end()) })
	took := map[time.Duration]time.Duration{} // taking what had ended at some time
	for i := range run.Events {
		if e := &run.Events[i]; e.Kind == "take" {
			took[e.At] = e.Took
		}
	}
	before := time.Duration(-1)
	for i := 0; i < len(moved); {
		first, taken, last, bytes, writes := forever, moved[i].end(), moved[i].end(), int64(0), 0
		n := i
		for ; n < len(moved) && moved[n].end()-last <= together; n++ {
			first, last = min(first, moved[n].At+modelled(handing[0]+handing[1]*float64(moved[n].Bytes))), moved[n].end()+took[moved[n].end()]
			bytes += moved[n].Bytes
			if moved[n].Kind == "write" {
				writes++
			}
		}
		began, alone := before, 0.0
		if first >= before {
			began, alone = first, 1
		}
		if writes == 0 && before >= 0 {
			q.add((taken - began).Seconds(), float64(n-i), float64(bytes), alone)
		}
		before, i = taken, n
	}
}

// beside collects how much longer calls took than in memory, and what ended meanwhile.
func (run *RecordedRun) beside(q *equations, memory map[string]float64) {
	var ends []*Event
	for i := range run.Events {
		if e := &run.Events[i]; e.Kind == "read" || e.Kind == "write" {
			ends = append(ends, e)
		}
	}
	slices.SortStableFunc(ends, func(a, b *Event) int { return int(a.end() - b.end()) })
	bytes := make([]int64, len(ends)+1)
	for i, e := range ends {
		bytes[i+1] = bytes[i] + e.Bytes
	}
	at := func(t time.Duration) int {
		return sort.Search(len(ends), func(i int) bool { return ends[i].end() > t })
	}
	for i := range run.Events {
		e := &run.Events[i]
		if each, ok := memory[run.call(e)]; ok && slices.Contains(backendCalls, e.Kind) {
			from, to := at(e.At), at(e.end())
			q.add(e.Took.Seconds()-each*e.units(), float64(to-from), float64(bytes[to]-bytes[from]))
		}
	}
}

// ReadHardware reads the JSON of a Fitted.
func ReadHardware(b []byte) (*Fitted, error) {
	d, f := json.NewDecoder(bytes.NewReader(b)), &Fitted{}
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		return nil, fmt.Errorf("simulate: hardware file: %w", err)
	}
	if f.Host.Storage == nil && f.Host.Drive == nil || f.Host.Cores < 1 || f.Host.Rates.Copy <= 0 {
		return nil, fmt.Errorf("simulate: hardware file: %d cores, storage %v, drive %v, %v bytes copied a second: want cores, a rate, and storage or a drive", f.Host.Cores, f.Host.Storage != nil, f.Host.Drive != nil, f.Host.Rates.Copy)
	}
	return f, nil
}
