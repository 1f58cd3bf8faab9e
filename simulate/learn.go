package simulate

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Learn takes from recorded runs of one policy and batch on a tier what its steps take there: the backend's calls, beside the tier's traffic;
// handing over, moving and taking an operation of a device; what a drive's process takes to fetch and to attend, and then the
// host's own work in a layer. What else Host says stays. ErrRecording where the runs have neither reads of a device nor a drive's answers.
func (h *Host) Learn(runs ...*RecordedRun) ([]Term, error) {
	for _, run := range runs {
		slices.SortStableFunc(run.Events, func(a, b Event) int { return int(a.At - b.At) })
	}
	h.Compute.learn(runs)
	var terms []Term
	if h.Drive == nil || h.Storage != nil {
		terms = h.learnDevice(runs)
	}
	if h.Drive != nil {
		terms = append(terms, h.learnDrive(runs)...)
	}
	if terms == nil {
		return nil, fmt.Errorf("%w: no read of a device, and no answer of a drive, in %d runs of %s", ErrRecording, len(runs), h.Compute.Policy)
	}
	for i := range terms {
		terms[i].Policy = h.Compute.Policy
	}
	return terms, nil
}

// learn takes what calls of the backend take on average.
func (c *Compute) learn(runs []*RecordedRun) {
	took, units := make([]float64, len(backendCalls)), make([]float64, len(backendCalls))
	for _, run := range runs {
		for i := range run.Events {
			if e := &run.Events[i]; slices.Contains(backendCalls, e.Kind) {
				k := slices.Index(backendCalls, e.Kind)
				took[k], units[k] = took[k]+e.Took.Seconds(), units[k]+e.units()
			}
		}
	}
	for i, to := range []*float64{&c.Embed, &c.Project, &c.Attend, &c.Finish, &c.Logits, &c.Guess} {
		if units[i] > 0 {
			*to = took[i] / units[i]
		}
	}
}

// learnDevice fits what an SSD's operations take; nil where there were no reads.
func (h *Host) learnDevice(runs []*RecordedRun) (terms []Term) {
	var hand, take, device equations
	for _, run := range runs {
		run.host(&hand, &take)
	}
	handing, known := hand.solve(2), Device{}
	if h.Storage != nil {
		known = deviceOf(*h)
	}
	for _, run := range runs {
		run.device(&device, handing, known.Wake)
	}
	if len(device.y) == 0 {
		return nil
	}
	d := &Device{Wake: known.Wake, Poll: known.Poll}
	for _, x := range []struct {
		name string
		q    *equations
		to   []*float64
	}{{"handing over", &hand, []*float64{&d.Hand, &d.HandByte}}, {"taking", &take, []*float64{&d.Take, &d.TakeByte}},
		{"device", &device, []*float64{&d.Op, &d.Byte, &d.Latency}}} {
		v := x.q.solve(len(x.to))
		for i, to := range x.to {
			*to = v[i]
		}
		terms = append(terms, x.q.term(x.name, v))
	}
	h.Device = d
	return terms
}

// Answering is the name of the term of a drive's attention.
const Answering = "answering"

// learnDrive fits what a drive's process takes, and what the host does in a layer beside waiting for it; nil where nothing was asked.
func (h *Host) learnDrive(runs []*RecordedRun) (terms []Term) {
	var fetch, answer equations
	outside, waited, layers := 0.0, 0.0, 0.0
	d := *h.Drive
	for _, run := range runs {
		run.fetches(&fetch)
		outside += run.OutsideS * float64(run.Steps)
		for i := range run.Events {
			switch e := &run.Events[i]; e.Kind {
			case "answer":
				answer.add(e.Took.Seconds(), d.Attend, d.AttendToken*float64(e.N))
				waited += e.Took.Seconds()
			case "project":
				layers++
			}
		}
	}
	if len(fetch.y) > 0 {
		v := fetch.solve(3)
		d.Fetch, d.FetchByte, d.FetchAlone = v[0], v[1], v[2]
		terms = append(terms, fetch.term("fetching", v))
	}
	if len(answer.y) > 0 { // runs at one depth do not tell a token from an answer: both take longer by the same share
		alone, took := 0.0, 0.0
		for i, y := range answer.y {
			alone, took = alone+answer.x[i][0]+answer.x[i][1], took+y
		}
		if alone > 0 {
			share := took / alone
			d.Attend, d.AttendToken = share*d.Attend, share*d.AttendToken
			t := answer.term(Answering, []float64{share, share})
			t.Each, t.More = d.Attend, d.AttendToken
			terms = append(terms, t)
		}
	}
	if layers > 0 {
		h.Compute.Layer, h.Compute.Scan, h.Compute.Ask = max(0, outside-waited)/layers, 0, 0
	}
	h.Drive = &d
	return terms
}

// fetches collects what a drive's process took: of fetches that were asked for together each from the end of the one before.
func (run *RecordedRun) fetches(q *equations) {
	var list []*Event
	for i := range run.Events {
		if e := &run.Events[i]; e.Kind == "fetch" {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b *Event) int { return int(a.end() - b.end()) })
	before := time.Duration(-1)
	for _, e := range list {
		began, alone := before, 0.0
		if e.At >= before {
			began, alone = e.At, 1
		}
		q.add((e.end() - began).Seconds(), 1, float64(e.Bytes), alone)
		before = e.end()
	}
}

// backendCalls are the kinds of events that are calls of the backend.
var backendCalls = []string{"embed", "project", "attend", "finish", "logits", "guess"}

// units are what a call's time is in proportion to.
func (e *Event) units() float64 {
	if e.Kind == "attend" {
		return float64(e.N)
	}
	return 1
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
// before had been taken, until the first of them was: the others had ended too. Who did not ask was woken, which is known. The unknowns: an operation,
// a byte, and that nothing was under way before.
func (run *RecordedRun) device(q *equations, handing []float64, wake float64) {
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
		woken := 1.0
		if moved[i].Polled {
			woken = 0
		}
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
			q.add((taken-began).Seconds()-wake*woken*alone, float64(n-i), float64(bytes), alone)
		}
		before, i = taken, n
	}
}
