package kvmanager

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"terrace/internal/kvpage"
)

// fullBorrower always holds all that it may.
type fullBorrower struct{ most, limit int64 }

func (b *fullBorrower) Most() int64 { return b.most }

func (b *fullBorrower) Limit(bytes int64) { b.limit = bytes }

// lengthen appends n tokens to every layer.
func lengthen(o Options, s *Sequence, n int) error {
	ids, pos := make([]int, n), make([]int32, n)
	for layer := range o.Layers {
		next := s.Tokens(layer, 0)
		for i := range pos {
			pos[i] = int32(next + i)
		}
		k, v := rows(o, layer, ids)
		if err := s.Append(layer, k, v, pos); err != nil {
			return err
		}
	}
	return nil
}

// TestTextsComeFirst: what keeps prompts may hold what texts leave of the budget, at most what it asks for; texts have all of the budget, and
// nothing of it is lost once they end.
func TestTextsComeFirst(t *testing.T) {
	o := shape(kvpage.F16, 1<<20)
	m := open(t, o)
	b := &fullBorrower{most: 600 << 10}
	m.Lend(b)
	if b.limit != b.most {
		t.Fatalf("%d bytes lent of an empty cache, want %d", b.limit, b.most)
	}
	rnd := rand.New(rand.NewPCG(3, 1))
	var seqs []*Sequence
	for step := range 400 {
		before := b.limit
		if len(seqs) > 0 && rnd.IntN(30) == 0 {
			i := rnd.IntN(len(seqs))
			seqs[i].Free()
			seqs = append(seqs[:i], seqs[i+1:]...)
			if want := min(b.most, o.BudgetBytes-m.inUse); b.limit != max(before, want) {
				t.Fatalf("step %d: %d bytes lent once a text has ended, %d are free", step, b.limit, want)
			}
		} else {
			if len(seqs) < 4 {
				seqs = append(seqs, m.NewSequence())
			}
			s := seqs[rnd.IntN(len(seqs))]
			err := lengthen(o, s, 1+rnd.IntN(400))
			if errors.Is(err, ErrBudget) {
				if b.limit != 0 {
					t.Fatalf("step %d: a text is refused while %d bytes are lent", step, b.limit)
				}
				seqs[0].Free()
				seqs = seqs[1:]
			} else if err != nil {
				t.Fatal(err)
			} else if b.limit > before {
				t.Fatalf("step %d: %d bytes lent while a text grows, before %d", step, b.limit, before)
			}
		}
		if err := m.Check(); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	for _, s := range seqs {
		s.Free()
	}
	if b.limit != b.most {
		t.Errorf("%d bytes lent in the end, want %d", b.limit, b.most)
	}
}

// TestLentBytesLeaveFirst: no block of a text leaves memory while somebody holds bytes that are lent; without a budget all is lent for good.
func TestLentBytesLeaveFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, store := onTiers(t, shape(kvpage.F32, 0), 20)
		m := open(t, o)
		b := &fullBorrower{most: o.BudgetBytes}
		m.Lend(b)
		c := &givingCache{m, "", 4 * 4096, new([]string)}
		if err := m.Charge(c.bytes); err != nil {
			t.Fatal(err)
		}
		m.AddReclaimer(c)
		for b.limit > 0 {
			before := b.limit
			if err := m.Charge(4096); err != nil || b.limit > before-4096 || len(*c.log) > 0 {
				t.Fatalf("%d of %d bytes lent, %d gave way: %v", b.limit, before, len(*c.log), err)
			}
		}
		if err := m.Charge(4096); err != nil || len(*c.log) != 1 || writes(store) != 0 {
			t.Errorf("%d caches gave way once nothing was lent: %v", len(*c.log), err)
		}
		m.Refund(m.charged)
		c.bytes = 0
		m.RemoveReclaimer(c)
	})
	free := &fullBorrower{most: 5}
	m := open(t, shape(kvpage.F32, 0))
	if m.Lend(free); free.limit != 5 {
		t.Errorf("%d bytes lent without a budget", free.limit)
	}
	m.NewSequence().Free()
	if free.limit != 5 {
		t.Errorf("%d bytes lent behind a text without a budget", free.limit)
	}
}
