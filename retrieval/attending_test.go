package retrieval

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"terrace/csdshim"
	"terrace/csdshim/attend"
	"terrace/csdshim/profiles"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/offload"
)

// servedDrives are drives in this process that attend, at sockets.
func servedDrives(t *testing.T, n int) (sockets []string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "drive") // t.TempDir may be longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	for i := range n {
		profile, err := profiles.Load("unlimited")
		if err != nil {
			t.Fatal(err)
		}
		drive, err := csdshim.OpenDrive(t.TempDir(), csdshim.Options{Profile: profile, CapacityBytes: 16 << 20, NoSync: true, Attention: attend.New()})
		if err != nil {
			t.Fatal(err)
		}
		socket := filepath.Join(folder, fmt.Sprint(i))
		l, err := csdshim.Listen(socket)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- drive.Serve(ctx, l, csdshim.ServerOptions{}) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			drive.Close()
		})
		sockets = append(sockets, socket)
	}
	return sockets
}

// attendedScenario has texts under policies that drives compute.
func attendedScenario(t *testing.T, drives int, policy string) *scenario {
	t.Helper()
	d, err := OpenDrives(t.Context(), servedDrives(t, drives), offload.AttendShape{Layers: 3, Heads: 4, KVHeads: 2, KeyDim: 32, ValueDim: 32, Elem: kvpage.F16}, offload.DrivesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return openScenario(t, parsed(t, policy), setup{bare: true, edit: func(o *Options, _ *kvmanager.Options) { o.Drives = d }})
}

// stepOnDrives takes a step of texts whose attention drives compute; it returns each layer's output of all rows.
func (s *scenario) stepOnDrives(texts ...*scenarioText) (out [][]float32, err error) {
	var p Pass
	p.Open(s.shared)
	for _, x := range texts {
		p.Rows = append(p.Rows, Rows{Sequence: x.Sequence, Reading: Step, New: 1, Pos: x.next(1), Len: int(x.Read()) + 1})
	}
	defer func() { p.Undo(err != nil) }()
	if err := s.shared.Begin(&p); err != nil {
		return nil, err
	}
	m := &s.shared.o.Shape
	for layer := range m.Layers {
		q := s.rows(&p, ofQueries, layer, m.queryWidth(layer))
		if err := p.Append(layer, s.rows(&p, ofKeys, layer, 64), s.rows(&p, ofValues, layer, 64)); err != nil {
			return nil, err
		}
		p.Observe(layer, q)
		p.Select(layer, q)
		if err := p.Prepare(layer+1, nil); err != nil {
			return nil, err
		}
		seqs := p.Fetch(layer)
		for i := range p.Rows {
			if p.Rows[i].Err != nil {
				return nil, p.Rows[i].Err
			}
			p.Rows[i].Sequence.CountReads(layer, &seqs[i])
		}
		out = append(out, slices.Clone(p.FromDrives(layer)))
		p.Attended(layer, out[layer])
		p.Overlap(layer + 1)
	}
	if err := p.Join(); err != nil {
		return nil, err
	}
	p.End()
	return out, nil
}

// TestDrivesAttend: with keys and values on one drive or two, a step's output is the attention over what the policy reads, of a batch too;
// after the prompt nothing of the texts is in host memory, and what was on its way is refunded.
func TestDrivesAttend(t *testing.T) {
	for _, c := range []struct {
		policy string
		drives int
		share  bool
	}{{"sparf:mode=dense", 1, false}, {"sparf:mode=dense", 2, false}, {"sparf:r=8,k=40,l=10", 2, true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s := attendedScenario(t, c.drives, c.policy)
			defer s.close(t)
			a, b := s.text(t, "a", parsed(t, c.policy)), s.text(t, "b", parsed(t, c.policy))
			if err := errors.Join(s.sectionwise(a, 90, 90, 64), s.sectionwise(b, 60, 60, 64)); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				at := []int32{a.Read(), b.Read()}
				out, err := s.stepOnDrives(a, b)
				if err != nil {
					t.Fatal(err)
				}
				s.check(t)
				for i, x := range []*scenarioText{a, b} {
					for layer := range 3 {
						ref, want := slowly(x, layer), reads{heads: [][]int32{upTo(at[i] + 1), upTo(at[i] + 1)}}
						if c.share {
							want = sparqReads(ref, at[i], 0)
						}
						ref.compareOutput(t, out[layer][i*128:(i+1)*128], at[i], want.heads, want.share)
					}
				}
			}
			if !a.OnDrives() || a.Held(1, 0) != 93 || !slices.Equal(a.Positions(1, 1), upTo(93)) || !s.shared.Recovers() || s.shared.Tiered() {
				t.Errorf("%d tokens on the drives", a.Held(1, 0))
			}
			if in := s.shared.o.KV.Stats().InUseBytes; in != 0 {
				t.Errorf("%d bytes in host memory", in)
			}
			tokens, _ := a.StepReads()
			want := int64(3 * 2 * (91 + 92 + 93))
			if c.share {
				want = 3 * 2 * 3 * 40
			}
			if tokens != want {
				t.Errorf("%d tokens read, want %d", tokens, want)
			}
		})
	}
}

// TestSecondPromptGoesDownRowByRow: rows of a later prompt are attended to densely, one after another.
func TestSecondPromptGoesDownRowByRow(t *testing.T) {
	s := attendedScenario(t, 1, "sparf:r=8,k=20")
	defer s.close(t)
	x := s.text(t, "a", parsed(t, "sparf:r=8,k=20"))
	if err := s.sectionwise(x, 40, 40, 64); err != nil {
		t.Fatal(err)
	}
	var p Pass
	p.Open(s.shared)
	p.Rows = append(p.Rows, Rows{Sequence: x.Sequence, Reading: LastChunk, New: 5, Pos: x.next(5), Len: 45})
	for layer := range 3 {
		q := s.rows(&p, ofQueries, layer, 128)
		if err := p.Append(layer, s.rows(&p, ofKeys, layer, 64), s.rows(&p, ofValues, layer, 64)); err != nil {
			t.Fatal(err)
		}
		p.Select(layer, q)
		p.Fetch(layer)
		out := p.FromDrives(layer)
		for i := range int32(5) {
			all := upTo(40 + i + 1)
			slowly(x, layer).compareOutput(t, out[i*128:(i+1)*128], 40+i, [][]int32{all, all}, nil)
		}
		p.Attended(layer, out)
	}
	p.End()
	if x.Read() != 45 || p.Failed() {
		t.Errorf("%d tokens read, %v", x.Read(), p.Rows[0].Err)
	}
	s.check(t)
}

// TestDrivesDoNotTakeBack: a text of which the drives have a part of a token that was taken back is lost, and says so until it is read again.
func TestDrivesDoNotTakeBack(t *testing.T) {
	s := attendedScenario(t, 1, "sparf:mode=dense")
	defer s.close(t)
	x := s.text(t, "a", parsed(t, "sparf:mode=dense"))
	if err := s.sectionwise(x, 40, 40, 64); err != nil {
		t.Fatal(err)
	}
	var p Pass
	p.Open(s.shared)
	p.Rows = append(p.Rows, Rows{Sequence: x.Sequence, Reading: Step, New: 1, Pos: x.next(1), Len: 41})
	if err := p.Append(0, s.rows(&p, ofKeys, 0, 64), s.rows(&p, ofValues, 0, 64)); err != nil {
		t.Fatal(err)
	}
	p.Select(0, s.rows(&p, ofQueries, 0, 128))
	p.Undo(true)
	s.check(t)
	if _, err := s.stepOnDrives(x); !errors.Is(err, offload.ErrTier) {
		t.Errorf("the text is lost: %v", err)
	}
	if err := x.Free(); err != nil {
		t.Error(err)
	}
	delete(s.texts, "a")
	again := s.text(t, "again", parsed(t, "sparf:mode=dense"))
	if err := s.sectionwise(again, 40, 40, 64); err != nil {
		t.Fatal(err)
	}
	if _, err := s.stepOnDrives(again); err != nil {
		t.Errorf("read again: %v", err)
	}
	if other := s.text(t, "full", parsed(t, "full")); other.OnDrives() {
		t.Error("drives attend to a text whose policy they do not compute")
	}
}

// TestEncodedAsStored: what goes down is each token's keys and values of all KV heads, as stored.
func TestEncodedAsStored(t *testing.T) {
	s := attendedScenario(t, 1, "sparf:mode=dense")
	defer s.close(t)
	x := s.text(t, "a", parsed(t, "sparf:mode=dense"))
	k, v := []float32{}, []float32{}
	for pos := range int32(37) {
		k, v = append(k, x.numbers(ofKeys, 1, pos, 64)...), append(v, x.numbers(ofValues, 1, pos, 64)...)
	}
	if err := x.Seq().Append(1, k, v, upTo(37)); err != nil {
		t.Fatal(err)
	}
	keys, values := x.onDrives().encoded(1, 37)
	row := make([]float32, 32)
	for pos := range 37 {
		for g := range 2 {
			for kind, data := range [][]byte{keys, values} {
				kvpage.ReadRow(kvpage.F16, data[(pos*2+g)*64:][:64], row)
				for d, want := range slowly(x, 1).row(uint64(kind), g, int32(pos)) {
					if math.Abs(float64(row[d])-want) > 0 {
						t.Fatalf("token %d, head %d, number %d: %g, want %g", pos, g, d, row[d], want)
					}
				}
			}
		}
	}
}

// TestFailedRowsOfDrives: what drives have computed of a sequence that has failed is not shown; its rows are zeros before the others'.
func TestFailedRowsOfDrives(t *testing.T) {
	const policy = "sparf:mode=dense"
	s := attendedScenario(t, 1, policy)
	defer s.close(t)
	a, b := s.text(t, "a", parsed(t, policy)), s.text(t, "b", parsed(t, policy))
	if err := errors.Join(s.sectionwise(a, 40, 40, 64), s.sectionwise(b, 30, 30, 64)); err != nil {
		t.Fatal(err)
	}
	var p Pass
	p.Open(s.shared)
	for _, x := range []*scenarioText{a, b} {
		p.Rows = append(p.Rows, Rows{Sequence: x.Sequence, Reading: Step, New: 1, Pos: x.next(1), Len: int(x.Read()) + 1})
	}
	if err := s.shared.Begin(&p); err != nil {
		t.Fatal(err)
	}
	if err := p.Append(0, s.rows(&p, ofKeys, 0, 64), s.rows(&p, ofValues, 0, 64)); err != nil {
		t.Fatal(err)
	}
	p.Select(0, s.rows(&p, ofQueries, 0, 128))
	p.Fetch(0)
	before := slices.Clone(p.FromDrives(0))
	p.Fail(0, errTest)
	after := p.FromDrives(0)
	if len(after) != 256 || slices.Max(before[:128]) <= 0 || slices.ContainsFunc(after[:128], func(x float32) bool { return x != 0 }) || !slices.Equal(after[128:], before[128:]) {
		t.Errorf("rows of a failed sequence: %v", after[:8])
	}
	p.Undo(true)
}
