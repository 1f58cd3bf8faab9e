package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

type timeline struct {
	TraceEvents []struct {
		Ph, Name string
		Tid      int
		Ts, Dur  float64
		Args     map[string]any
	}
}

func TestTimelineIsReadBack(t *testing.T) {
	var out bytes.Buffer
	now := 1500 * time.Nanosecond
	r := New(&out, func() time.Duration { return now })
	s := r.Span(Read, "layer \"3\"\a")
	now += 2048 * time.Nanosecond
	s.EndBytes(4096)
	r.Layer(Compute, "attend", 4).By("xla:cpu").End()
	r.Span(Up, "keys").By("xla:cpu").EndBytes(7)
	if got := r.Totals(Read); got != (Totals{2048, 4096, 1}) {
		t.Errorf("totals %+v", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.Span(Compute, "too late").End()
	var tl timeline
	if err := json.Unmarshal(out.Bytes(), &tl); err != nil {
		t.Fatalf("%v in %s", err, out.Bytes())
	}
	spans := 0
	names := map[string]bool{}
	for _, e := range tl.TraceEvents {
		if e.Ph == "M" {
			if n, ok := e.Args["name"].(string); ok {
				names[n] = true
			}
			continue
		}
		spans++
		if e.Tid == int(Compute)+1 && (e.Name != "attend 4" || len(e.Args) != 1 || e.Args["backend"] != "xla:cpu") {
			t.Errorf("span %+v", e)
		}
		if e.Tid == int(Up)+1 && (e.Args["backend"] != "xla:cpu" || e.Args["bytes"] != 7.0) {
			t.Errorf("span %+v", e)
		}
		if e.Name == "layer \"3\"\a" && (e.Tid != int(Read)+1 || e.Ts != 1.5 || e.Dur != 2.048 || e.Args["bytes"] != 4096.0) {
			t.Errorf("span %+v", e)
		}
	}
	if spans != 3 {
		t.Errorf("%d spans, want 3", spans)
	}
	for row := range rows {
		if !names[row.String()] {
			t.Errorf("no row %v", row)
		}
	}
}

func TestManySpansFromManyGoroutines(t *testing.T) {
	var out bytes.Buffer
	r := New(&out, func() time.Duration { return 7 })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range bufferedEvents {
				r.Span(Score, "s").End()
			}
		})
	}
	wg.Wait()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var tl timeline
	if err := json.Unmarshal(out.Bytes(), &tl); err != nil {
		t.Fatal(err)
	}
	if got := r.Totals(Score).Spans; got != 4*bufferedEvents || len(tl.TraceEvents) != 4*bufferedEvents+1+2*int(rows) {
		t.Errorf("%d spans, %d events in the file", got, len(tl.TraceEvents))
	}
}

type full struct{ left int }

var errFull = errors.New("full")

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriteErrorsAreReported(t *testing.T) {
	r := New(&full{100 << 10}, func() time.Duration { return 0 })
	for range 3 * bufferedEvents {
		r.Span(Write, "w").End()
	}
	if err := r.Close(); !errors.Is(err, errFull) {
		t.Errorf("error %v", err)
	}
}

func TestNilRecorderCostsNothing(t *testing.T) {
	var r *Recorder
	if n := testing.AllocsPerRun(100, func() { s := r.Span(Wait, "w"); s.EndBytes(1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if r.Close() != nil || r.Totals(Wait) != (Totals{}) {
		t.Error("the nil recorder does something")
	}
}

func TestSharedSpansAreOne(t *testing.T) {
	var out bytes.Buffer
	now := time.Duration(0)
	r := New(&out, func() time.Duration { return now })
	at := func(d time.Duration) { now = d * time.Microsecond }
	a := r.Shared(CSD, "score", 1)
	at(10)
	b := r.Shared(CSD, "score", 2)
	at(30)
	a.EndBytes(3)
	at(40)
	b.EndBytes(4)
	at(50)
	c := r.Shared(CSD, "score", 3)
	at(60)
	c.End()
	if got := r.Totals(CSD); got != (Totals{50 * time.Microsecond, 7, 2}) {
		t.Errorf("totals %+v", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var tl timeline
	if err := json.Unmarshal(out.Bytes(), &tl); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range tl.TraceEvents {
		if e.Ph == "X" {
			got = append(got, fmt.Sprint(e.Name, " ", e.Ts, " ", e.Dur))
		}
	}
	if want := []string{"score 1 0 40", "score 3 50 10"}; !slices.Equal(got, want) {
		t.Errorf("spans %q, want %q", got, want)
	}
}

func TestUnitsHaveLinesOfTheirOwn(t *testing.T) {
	var out bytes.Buffer
	r := New(&out, func() time.Duration { return 0 })
	r.Lane(DriveNAND, "drive 0 channel 1", 1, "layer", 3, 0, 5*time.Microsecond)
	r.Lane(DriveNAND, "drive 0 channel 0", 0, "layer", 3, time.Microsecond, 7*time.Microsecond)
	r.Lane(DriveNAND, "drive 0 channel 1", 1, "layer", 4, 5*time.Microsecond, 6*time.Microsecond)
	if got := r.Totals(DriveNAND); got != (Totals{Busy: 12 * time.Microsecond, Spans: 3}) {
		t.Errorf("totals %+v", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var tl timeline
	if err := json.Unmarshal(out.Bytes(), &tl); err != nil {
		t.Fatal(err)
	}
	lines, places := map[int]string{}, map[string]int{}
	var got []string
	for _, e := range tl.TraceEvents {
		if name, ok := e.Args["name"].(string); ok && e.Name == "thread_name" {
			lines[e.Tid] = name
		}
		if place, ok := e.Args["sort_index"].(float64); ok {
			places[lines[e.Tid]] = int(place)
		}
		if e.Ph == "X" {
			got = append(got, fmt.Sprint(lines[e.Tid], ": ", e.Name, " ", e.Ts, " ", e.Dur))
		}
	}
	want := []string{"drive 0 channel 1: layer 3 0 5", "drive 0 channel 0: layer 3 1 6", "drive 0 channel 1: layer 4 5 1"}
	if !slices.Equal(got, want) || len(lines) != int(rows)+2 {
		t.Errorf("spans %q, want %q; lines %v", got, want, lines)
	}
	if !(places["drive engine (modelled)"] < places["drive 0 channel 0"] && places["drive 0 channel 0"] < places["drive 0 channel 1"]) {
		t.Errorf("places %v", places)
	}
}
