package attend

import (
	"context"
	"errors"
	"slices"
	"testing"

	"terrace/csdshim"
	"terrace/csdshim/profiles"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/internal/vfs"
)

// sharded is 40 heads on several drives, the first of which have one head more where they do not divide evenly.
type sharded struct {
	t        *testing.T
	profile  csdshim.Profile
	clock    *clock.Events
	files    []*vfs.Mem
	drives   []*csdshim.Drive
	sessions []*csdshim.Session
	first    []int // head of each drive, and 40
}

const shardedHeads, shardedDim = 40, 16

func newSharded(t *testing.T, drives int) *sharded {
	p, err := profiles.Load("instcsd")
	if err != nil {
		t.Fatal(err)
	}
	p.NAND.Dies, p.NAND.Planes, p.NAND.BlockPages = 2, 1, 16
	s := &sharded{t: t, profile: p, clock: clock.NewEvents(), first: []int{0}, drives: make([]*csdshim.Drive, drives), sessions: make([]*csdshim.Session, drives)}
	for i := range drives {
		s.files = append(s.files, vfs.NewMem(64<<20))
		s.first = append(s.first, s.first[i]+(shardedHeads-s.first[i]+drives-i-1)/(drives-i))
		s.start(i)
	}
	return s
}

// start opens a drive on what it stored, as after a loss.
func (s *sharded) start(i int) {
	d, err := csdshim.OpenDrive("drive", csdshim.Options{Profile: s.profile, CapacityBytes: 8 << 20, NoSync: true, FS: s.files[i], Clock: s.clock, Attention: New()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.drives[i], s.sessions[i] = d, d.Connect([16]byte{1}, 0)
	if err := s.sessions[i].OpenAttended(1, csdshim.AttendShape{Layers: 1, Heads: s.first[i+1] - s.first[i], KeyDim: shardedDim, ValueDim: shardedDim, ElemBytes: 2, TokenGroup: 128, EmbeddingGroup: 8, Elem: kvpage.F16}); err != nil {
		s.t.Fatal(err)
	}
}

// part is a drive's heads of rows of all heads.
func (s *sharded) part(i, tokens int, rows []byte) (out []byte) {
	const row = 2 * shardedDim
	for t := range tokens {
		out = append(out, rows[(t*shardedHeads+s.first[i])*row:(t*shardedHeads+s.first[i+1])*row]...)
	}
	return out
}

// attend asks all drives at the same time; the outputs lie side by side.
func (s *sharded) attend(at int, keys []byte, q []float32) (out []float32, failed []int) {
	parts, errs, left, done := make([][]float32, len(s.drives)), make([]error, len(s.drives)), len(s.drives), make(chan struct{})
	for i, session := range s.sessions {
		rows := s.part(i, 1, keys)
		m := csdshim.AttendQuery{Scale: 0.25, Dims: 4, Best: 60, Local: 9, Q: q[s.first[i]*shardedDim : s.first[i+1]*shardedDim],
			Tail: csdshim.Tail{Seq: 1, At: at, Tokens: 1, Keys: rows, Values: rows}}
		s.clock.Go(func() {
			_, got, err := session.Attend(context.Background(), &m)
			parts[i], errs[i] = got.Out, err
			if left--; left == 0 {
				close(done)
			}
		})
	}
	s.clock.Wait(done)
	for i := range parts {
		out = append(out, parts[i]...)
		if errs[i] != nil {
			failed = append(failed, i)
		}
	}
	return out, failed
}

// TestTwentyDrives: outputs of 40 heads on 20 drives, on one virtual clock, are one drive's bit for bit. Where a drive is lost the others
// answer, and once it is back from what it stored all of it is as before.
func TestTwentyDrives(t *testing.T) {
	const tokens = 300
	x := newTextOf(shardedHeads, shardedDim, tokens+1)
	q := make([]float32, shardedHeads*shardedDim)
	for i := range q {
		q[i] = float32(i%13) - 6.5
	}
	row := shardedHeads * shardedDim * 2
	var want []float32
	for _, n := range []int{1, 20} {
		s := newSharded(t, n)
		for i, session := range s.sessions {
			rows := s.part(i, tokens, x)
			if _, _, err := session.Append(context.Background(), &csdshim.Tail{Seq: 1, Tokens: tokens, Keys: rows, Values: rows}); err != nil {
				t.Fatal(err)
			}
		}
		got, failed := s.attend(tokens, x[tokens*row:], q)
		if want == nil {
			want = got
		}
		if len(failed) > 0 || len(got) != len(q) || !slices.Equal(got, want) {
			t.Errorf("%d drives: other outputs than one drive's, failed: %v", n, failed)
		}
		lost := n / 2
		s.sessions[lost].Disconnect()
		if err := s.drives[lost].Close(); err != nil {
			t.Fatal(err)
		}
		if _, failed = s.attend(tokens, x[tokens*row:], q); !slices.Equal(failed, []int{lost}) {
			t.Errorf("%d drives, one lost: %v failed, want %d", n, failed, lost)
		}
		s.start(lost)
		if got, failed = s.attend(tokens, x[tokens*row:], q); len(failed) > 0 || !slices.Equal(got, want) {
			t.Errorf("%d drives, one back: other outputs, failed: %v", n, failed)
		}
		var err error
		for i := range s.drives {
			s.sessions[i].Disconnect()
			err = errors.Join(err, s.drives[i].Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// newTextOf are the rows of tokens, [tokens][heads][dim] in half precision.
func newTextOf(heads, dim, tokens int) []byte {
	wide, out := make([]float32, tokens*heads*dim), make([]byte, 2*tokens*heads*dim)
	seed := uint32(1)
	for i := range wide {
		seed = seed*1664525 + 1013904223
		wide[i] = float32(seed>>16)/32768 - 1
	}
	kvpage.PutRow(kvpage.F16, out, wide)
	return out
}
