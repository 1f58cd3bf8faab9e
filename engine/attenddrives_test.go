package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"terrace/csdshim"
	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/clock"
	"terrace/model"
	"terrace/weights"
)

// testDrives are the tiers of drives that attend.
func testDrives(drives ...*testDrive) (tiers []tier.Tier) {
	for _, d := range drives {
		tiers = append(tiers, tier.Tier{Kind: tier.CSD, Place: d.socket})
	}
	return tiers
}

// TestDrivesAttend: with keys and values on one drive or shared by two, logits are the host's bit for bit, alone, in a batch and after
// a second prompt's rows were attended to one by one; host memory has one layer's pages and what goes down of another.
func TestDrivesAttend(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 1), fakes.IDs(9, 2)
	for _, spec := range []string{"sparf:r=4,k=40,l=9", "sparf:m=8,n=5", "sparf:mode=dense", "sparf:k=400"} {
		for _, exact := range []bool{false, true} {
			t.Run(fmt.Sprint(strings.NewReplacer(":", " ", ",", " ").Replace(spec), exact), func(t *testing.T) {
				t.Parallel()
				o := Options{Threads: 2, Policy: spec, ChunkTokens: 64, Exact: exact}
				host := small(t, o)
				want := forced(t, host, prompt, next)
				a, b := newTestDrive(t).start(), newTestDrive(t).start()
				for _, drives := range [][]*testDrive{{a}, {a, b}} {
					o.Tiers = testDrives(drives...)
					e := small(t, o)
					if d := fakes.Worst(want, forced(t, e, prompt, next)); d != 0 {
						t.Errorf("%d drives: logits differ by %g", len(drives), d)
					}
					if d := fakes.Worst(want, inBatch(t, e, prompt, next)); d != 0 {
						t.Errorf("%d drives, in a batch: logits differ by %g", len(drives), d)
					}
					checkDriveUse(t, e, len(drives), len(prompt), len(next))
				}
			})
		}
	}
}

// checkDriveUse looks at what moved: the prompt's keys and values, then q, k, v down and the output up.
func checkDriveUse(t *testing.T, e *Engine, drives, prompt, steps int) {
	t.Helper()
	m, u := e.m, e.TierUse()
	if len(u.Drives) != drives {
		t.Fatalf("%d drives in the accounts, want %d", len(u.Drives), drives)
	}
	var down, up, wantDown, wantUp int64
	for _, d := range u.Drives {
		down, up = down+d.ToDriveBytes, up+d.ToHostBytes
	}
	kv := int64(m.Layer[0].KVHeads * (m.Layer[0].KeyDim + m.Layer[0].ValDim) * e.o.KType.Bits() / 8)
	for _, tokens := range []int{prompt, prompt, 97} { // alone, and two texts in a batch
		wantDown += int64(m.Layers) * (int64(tokens+steps)*kv + int64(steps*4*m.Layer[0].Heads*m.Layer[0].KeyDim))
		wantUp += int64(m.Layers * steps * 4 * m.Layer[0].Heads * m.Layer[0].ValDim)
	}
	if down != wantDown || up != wantUp {
		t.Errorf("%d bytes down and %d up, want %d and %d", down, up, wantDown, wantUp)
	}
	if most := int64(2*(prompt+16)+97) * kv; e.KV().PeakBytes > most {
		t.Errorf("%d bytes of KV in host memory, want at most two layers' and the other text's last: %d", e.KV().PeakBytes, most)
	}
}

// TestDrivesAttendToWindows: layers with a sliding window are attended to by the drive as well.
func TestDrivesAttendToWindows(t *testing.T) {
	t.Parallel()
	path := fakes.Windowed(t)
	prompt, next := fakes.IDs(540, 3), fakes.IDs(3, 4)
	o := Options{Threads: 2, Policy: "sparf:r=4,k=30"}
	want := forced(t, openModel(t, path, o), prompt, next)
	o.Tiers = testDrives(newTestDrive(t).start())
	if d := fakes.Worst(want, forced(t, openModel(t, path, o), prompt, next)); d != 0 {
		t.Errorf("logits differ by %g", d)
	}
}

// TestDriveThatAttendsIsLost: a drive that comes back goes on with what it has; where a page is damaged the text is read again;
// one that stays away costs one error.
func TestDriveThatAttendsIsLost(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(150, 5), fakes.IDs(8, 6)
	o := Options{Threads: 2, Policy: "sparf:r=4,k=30,m=2"}
	want := forced(t, small(t, o), prompt, next)
	a, b := newTestDrive(t).start(), newTestDrive(t)
	b.faults = csdshim.Faults{Rules: []csdshim.Fault{{Kind: csdshim.FaultCorrupt, After: 3, Times: 1}, {Kind: csdshim.FaultDisconnect, On: "attend", After: 9, Times: 2}}}
	o.Tiers, o.Machine.Clock = testDrives(a, b.start()), clock.NewJumping() // the waits between dials
	e := small(t, o)
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	got := [][]float32{slices.Clone(s.Logits())}
	for i, id := range next {
		if i == 4 {
			a.stop()
			a.start()
		}
		if err := s.Decode(id); err != nil {
			t.Fatal(err)
		}
		got = append(got, slices.Clone(s.Logits()))
	}
	if d := fakes.Worst(want, got); d != 0 {
		t.Errorf("logits differ by %g", d)
	}
	b.stop()
	if err := s.Decode(next[0]); !errors.Is(err, ErrTier) {
		t.Errorf("a drive that stays away: %v", err)
	}
}

// TestDrivesRefuse: what drives that attend cannot do is said before anything is read.
func TestDrivesRefuse(t *testing.T) {
	t.Parallel()
	path := fakes.Small(t)
	plain := newTestDrive(t)
	plain.profile = "plain"
	d := newTestDrive(t).start()
	for name, o := range map[string]Options{
		"two drives that store":     {Tiers: append(testDrives(d, d), tier.Tier{Kind: tier.Host, CapacityBytes: 1 << 20})},
		"a drive without an engine": {Policy: "sparf", Tiers: testDrives(plain.start())},
		"more drives than heads":    {Policy: "sparf", Tiers: testDrives(d, d, d, d, d, d, d, d, d)},
		"an ssd beside":             {Policy: "sparf", Tiers: append(testDrives(d), tier.Tier{Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 1 << 20}, tier.Tier{Kind: tier.Host, CapacityBytes: 1 << 20})},
		"only to store":             {Tiers: testDrives(d)},
	} {
		if e, err := Open(openFile(t, path), o); err == nil {
			t.Errorf("%s: opened", name)
			e.Close()
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than a line: %v", name, err)
		}
	}
}

// TestMiniBatches: three texts in two mini-batches have the logits that each has alone, also where one of them fails on the way and
// is read again.
func TestMiniBatches(t *testing.T) {
	t.Parallel()
	o := Options{Threads: 2, Policy: "sparf:r=4,k=20"}
	host, next := small(t, o), fakes.IDs(6, 9)
	d := newTestDrive(t)
	// A text is read again once an attend has failed twice. Three texts may have one under way at a time, so among four failures in
	// a row is a second one of some text's.
	d.faults = csdshim.Faults{Rules: []csdshim.Fault{{Kind: csdshim.FaultFail, On: "attend", After: 20, Times: 4}}}
	o.Tiers = testDrives(d.start())
	e := small(t, o)
	var sessions []*Session
	var want, got [3][][]float32
	for i := range 3 {
		prompt := fakes.IDs(60+31*i, uint64(i))
		want[i] = forced(t, host, prompt, next)
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		sessions, got[i] = append(sessions, s), [][]float32{slices.Clone(s.Logits())}
	}
	for _, id := range next {
		if err := e.DecodeBatch(sessions, []int{id, id, id}); err != nil {
			t.Fatal(err)
		}
		for i, s := range sessions {
			got[i] = append(got[i], slices.Clone(s.Logits()))
		}
	}
	for i := range want {
		if d := fakes.Worst(want[i], got[i]); d != 0 {
			t.Errorf("text %d: logits differ by %g", i, d)
		}
	}
	if e.TierUse().Replays == 0 {
		t.Error("no text was read again: nothing has failed")
	}
}

// TestDrivesThatCannotAttend: models whose layers differ, or whose heads have sinks, are refused by name before a drive is asked.
func TestDrivesThatCannotAttend(t *testing.T) {
	t.Parallel()
	file, err := weights.Open(fakes.Small(t))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sinks, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	sinks.Params.Layers[1].Sinks = sinks.Params.Layers[1].AttnNorm.W
	chunks, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	chunks.EachAttention(func(a *model.Attention) { a.Chunk = 8 })
	for want, m := range map[string]*model.Model{"scores of sinks": sinks, "without the chunks": chunks, "layers differ": fakes.Mixed(3)} {
		_, err := Open(m, Options{Threads: 1, Policy: "sparf:mode=dense", Tiers: []tier.Tier{{Kind: tier.CSD, Place: "none"}}})
		if !errors.Is(err, model.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
