package simulate

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"terrace/internal/vfs"
	"terrace/offload"
)

// TestFitFindsTheRates: a host of known rates is recorded, and what Fit makes of the recording's file are these rates.
func TestFitFindsTheRates(t *testing.T) {
	want := Device{Hand: 6e-6, HandByte: 0.1e-9, Op: 9e-6, Byte: 0.6e-9, Latency: 70e-6, Take: 4e-6, TakeByte: 0.08e-9, Wake: 5e-6, Poll: 1e-7}
	model := want
	model.Take, model.TakeByte = 0, 0 // taken in Done, below, as the product does
	const call = 300e-6
	p := PaceHost(Host{Cores: 2, Storage: &offload.StorageRates{}, Device: &model})
	r := &Recording{clock: p.Clock, limit: maxEvents}
	host := Host{Cores: 2, Storage: &offload.StorageRates{Latency: 105e-6, Polled: 100e-6, Poll: 1e-7}, Rates: offload.HostRates{Copy: 1}, Compute: Compute{Policy: "full", Batch: 1, Finish: 1, Ask: 2e-6}}
	f, err := r.Disk(p.Disk).OpenFile("kv", vfs.OpenOptions{Create: true, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	e, _ := vfs.NewEngine(f, 32, true)
	calls := func(n int) {
		for range n {
			begun := p.Clock.Now()
			p.cores.work(call)
			r.add("finish", 1, 0, begun, p.Clock.Now())
		}
	}
	buf := make([]byte, 256<<10)
	if err := f.Preallocate(1 << 20); err != nil {
		t.Fatal(err)
	}
	reads := func(n, size int) {
		for range n {
			e.Start([]*vfs.IO{{Bufs: [][]byte{buf[:size]}, Done: func(*vfs.IO) { p.cores.work(want.Take + want.TakeByte*float64(size)) }}})
		}
	}
	r.Begin()
	for i := range 60 {
		reads(1+i%4, 4096<<(i%5)) // few enough bytes for all of them to be taken together
		calls(2)
		p.Settle()
	}
	for i := range 40 {
		reads(1, 4096<<(i%5))
		for began := p.Clock.Now(); p.Clock.Now() < began+2*time.Millisecond; { // who polls is not woken
			e.Poll()
		}
	}
	r.End(RecordedRun{Policy: "full", Tiers: []string{"ssd=kv,1MiB"}, Batch: 1, Host: &host})
	var file bytes.Buffer
	if err := r.Write(&file); err != nil {
		t.Fatal(err)
	}
	back, err := ReadRecording(&file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Fit(back)
	if err != nil {
		t.Fatal(err)
	}
	h, ok := got.Of("full", 1)
	d := *h.Device
	for _, c := range []struct {
		name      string
		got, want float64
	}{{"hand", d.Hand, want.Hand}, {"a byte", d.HandByte, want.HandByte}, {"operation", d.Op, want.Op}, {"a byte", d.Byte, want.Byte}, {"latency", d.Latency, want.Latency},
		{"take", d.Take, want.Take}, {"a byte", d.TakeByte, want.TakeByte}, {"waking", d.Wake, want.Wake}} {
		if math.Abs(c.got/c.want-1) > 0.1 {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if !ok || math.Abs(h.Compute.Finish/call-1) > 1e-9 || h.Compute.Ask != 2e-6 {
		t.Errorf("%+v", h)
	}
	if _, ok := got.Of("full", 2); ok {
		t.Error("a batch that was not recorded")
	}
}

// TestRecordingsAreRefused: what is no recording, or has nothing to fit, is an error that says where.
func TestRecordingsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "line 1",
		`{"k":"read","at_ns":0}`:    "line 1",
		`{"policy":"full","odd":1}`: "odd",
		`{"policy":"full"}` + "\n" + `{"k":"read","at_ns":1,"ns":-1}`: "below 0",
	} {
		if _, err := ReadRecording(strings.NewReader(text)); !errors.Is(err, ErrRecording) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	r, err := ReadRecording(strings.NewReader(`{"policy":"full"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Fit(r); !errors.Is(err, ErrRecording) {
		t.Errorf("%v", err)
	}
	if _, err := ReadHardware([]byte(`{"hardware":{"cores":2}}`)); err == nil {
		t.Error("a hardware file without rates")
	}
}

// TestRecordingIsWhole: a recording that left events out is not written.
func TestRecordingIsWhole(t *testing.T) {
	r := NewRecording()
	r.limit = 3
	for n := range 4 {
		r.Begin()
		for range n + 1 {
			r.add("hand", 1, 1, 0, 1)
		}
		r.End(RecordedRun{})
		if err := r.Write(io.Discard); errors.Is(err, ErrRecording) != (n == 3) {
			t.Errorf("%d events: %v", n+1, err)
		}
	}
}

// TestLeast: what no event has is 0, what cannot be told apart is one of both, and nothing is below 0.
func TestLeast(t *testing.T) {
	for name, c := range map[string]struct {
		y    []float64
		x    [][]float64
		want []float64
	}{
		"exact":      {[]float64{5, 8, 7}, [][]float64{{1, 2}, {2, 3}, {3, 2}}, []float64{1, 2}},
		"absent":     {[]float64{2, 4}, [][]float64{{1, 0}, {2, 0}}, []float64{2, 0}},
		"same":       {[]float64{2, 4}, [][]float64{{1, 2}, {2, 4}}, []float64{2, 0}},
		"negative":   {[]float64{1, 1}, [][]float64{{1, 1}, {1, 2}}, []float64{1, 0}},
		"below 0":    {[]float64{3, 1, -1}, [][]float64{{1, 0}, {1, 1}, {1, 2}}, []float64{1, 0}},
		"few events": {[]float64{2}, [][]float64{{1, 1}}, []float64{2, 0}},
		"none":       {nil, nil, []float64{0, 0}},
	} {
		q := equations{c.x, c.y}
		for i, got := range q.solve(2) {
			if math.Abs(got-c.want[i]) > 1e-9 {
				t.Errorf("%s: unknown %d is %g, want %v", name, i, got, c.want)
			}
		}
	}
}

// TestLearnsADrivesProcess: from fetches that were under way together, and from its attention, what a drive's process takes; what is left of the
// host's own time is a layer's. The modelled drive then takes as long.
func TestLearnsADrivesProcess(t *testing.T) {
	const op, perByte, alone, answer, layer = 100e-6, 0.5e-9, 40e-6, 900e-6, 20e-6
	run := &RecordedRun{Policy: "full", Tiers: []string{"csd=unix:s"}, Batch: 1, Steps: 2}
	now, waited := time.Duration(0), 0.0
	add := func(kind string, n int, bytes int64, from, to time.Duration) {
		run.Events = append(run.Events, Event{Kind: kind, At: from, Took: to - from, N: n, Bytes: bytes})
	}
	for i := range 30 {
		begun, free := now, now
		for j := range 1 + i%3 { // asked for at once, done one after another
			bytes := int64(50000 * (1 + (i+j)%4))
			free += modelled(op + perByte*float64(bytes))
			add("fetch", 4, bytes, begun, free+modelled(alone))
		}
		now = free + modelled(alone) + time.Millisecond
		add("project", 1, 0, now, now+modelled(300e-6))
		add("attend", 500, 0, now, now+modelled(500*40e-9))
		add("answer", 1000+i, 0, now, now+modelled(answer))
		waited += answer
		now += 2 * time.Millisecond
	}
	run.OutsideS = (waited + 30*layer) / 2
	h := Host{Cores: 2, Drive: &Drive{Profile: "instcsd", Attend: 200e-6, AttendToken: 0.25e-6}, Compute: Compute{Policy: "full", Batch: 1}}
	terms, err := h.Learn(run)
	if err != nil || len(terms) != 2 {
		t.Fatalf("%+v, %v", terms, err)
	}
	d := h.Drive
	for _, c := range []struct {
		name      string
		got, want float64
	}{{"fetch", d.Fetch, op}, {"a byte", d.FetchByte, perByte}, {"latency", d.FetchAlone, alone}, {"answer", d.Attend + 1015*d.AttendToken, answer},
		{"layer", h.Compute.Layer, layer}, {"project", h.Compute.Project, 300e-6}, {"attend", h.Compute.Attend, 40e-9}} {
		if math.Abs(c.got/c.want-1) > 0.02 {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if d.AttendToken*800 > d.Attend*1.001 || d.AttendToken*800 < d.Attend*0.999 {
		t.Errorf("the share of a token changed: %g and %g", d.Attend, d.AttendToken)
	}
	if _, err := h.Learn(&RecordedRun{}); !errors.Is(err, ErrRecording) {
		t.Errorf("nothing to learn from: %v", err)
	}
}
