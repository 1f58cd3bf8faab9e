package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"terrace/offload"
)

// Device is what moving bytes to and from an SSD takes, in seconds: an operation so much, and so much more a byte.
type Device struct {
	Hand     float64 `json:"hand_s"` // of the core that hands it over
	HandByte float64 `json:"hand_s_per_byte"`
	Op       float64 `json:"op_s"` // of the device, one after another
	Byte     float64 `json:"op_s_per_byte"`
	Latency  float64 `json:"latency_s"` // after that
	Wake     float64 `json:"wake_s"`    // and where nobody polls for it, until somebody has been woken
	Poll     float64 `json:"poll_s"`    // asking once what has ended
	Take     float64 `json:"take_s"`    // of the core that takes it: checksum, copy, and what is told of it
	TakeByte float64 `json:"take_s_per_byte"`
}

// Fitted is a hardware file that Fit has worked out: the host under each policy and batch, and how good the fits are.
type Fitted struct {
	Hosts []Host `json:"hosts"` // Compute says whose
	Terms []Term `json:"fit"`
}

// Of is the host under a policy and a batch; false where the file has none.
func (f *Fitted) Of(policy string, batch int) (Host, bool) {
	for _, h := range f.Hosts {
		if h.Compute.Policy == policy && h.Compute.Batch == batch {
			return h, true
		}
	}
	return Host{}, false
}

// Term is one of the fit's equations: how many events went in, how many seconds they took, and how many the fit gives them.
type Term struct {
	Policy string  `json:"policy"`
	Name   string  `json:"name"`
	Events int     `json:"events"`
	Took   float64 `json:"took_s"`
	Gives  float64 `json:"gives_s"`
	Error  float64 `json:"error"` // root of the mean square of an event's error, over the mean of what an event took

	Each, More float64 `json:"-"` // what an event takes, and what it takes more a byte or token, in seconds
}

// ErrRecording wraps errors of a recording that cannot be read or fitted.
var ErrRecording = errors.New("simulate: recording")

// ReadRecording reads what Recording.Write wrote.
func ReadRecording(in io.Reader) (*Recording, error) {
	r, d := NewRecording(), json.NewDecoder(in)
	d.DisallowUnknownFields()
	for n := 1; ; n++ {
		var line struct {
			*RecordedRun
			*Event
		}
		err := d.Decode(&line)
		switch {
		case errors.Is(err, io.EOF) && n == 1:
			return nil, fmt.Errorf("%w: line 1: nothing there", ErrRecording)
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
	t := Term{Name: name, Events: len(q.y), Each: solution[0], More: solution[1]}
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

// Fit works hosts' rates out of a recording, one for each policy and batch of which it has runs on a tier.
func Fit(r *Recording) (*Fitted, error) {
	f := &Fitted{}
	for i := range r.Runs {
		host := r.Runs[i].Host
		if host == nil {
			continue
		}
		if _, known := f.Of(host.Compute.Policy, host.Compute.Batch); known {
			continue
		}
		var runs []*RecordedRun
		for j := range r.Runs {
			if run := &r.Runs[j]; run.Policy == host.Compute.Policy && run.Batch == host.Compute.Batch && len(run.Tiers) > 0 {
				runs = append(runs, run)
			}
		}
		h := *host
		terms, err := h.Learn(runs...)
		if err != nil {
			return nil, err
		}
		f.Hosts, f.Terms = append(f.Hosts, h), append(f.Terms, terms...)
	}
	if len(f.Hosts) == 0 {
		return nil, fmt.Errorf("%w: no run with a host in %d runs: want a case on a tier", ErrRecording, len(r.Runs))
	}
	return f, nil
}

// ReadHardware reads the JSON of a Fitted.
func ReadHardware(b []byte) (*Fitted, error) {
	d, f := json.NewDecoder(bytes.NewReader(b)), &Fitted{}
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		return nil, fmt.Errorf("simulate: hardware file: %w", err)
	}
	if err := offload.CheckRates(b); err != nil {
		return nil, fmt.Errorf("simulate: hardware file: %w", err)
	}
	for _, h := range f.Hosts {
		if h.Storage == nil && h.Drive == nil || h.Cores < 1 || h.Rates.Copy <= 0 {
			return nil, fmt.Errorf("simulate: hardware file: policy %s: %d cores, storage %v, drive %v, %v bytes copied a second: want cores, a rate, and storage or a drive", h.Compute.Policy, h.Cores, h.Storage != nil, h.Drive != nil, h.Rates.Copy)
		}
	}
	if len(f.Hosts) == 0 {
		return nil, errors.New("simulate: hardware file: no host")
	}
	return f, nil
}
