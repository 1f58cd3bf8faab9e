package kvmanager

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
)

// givingCache gives back what it has, a piece at a time.
type givingCache struct {
	m     *Manager
	name  string
	bytes int64
	log   *[]string
}

func (c *givingCache) Bytes() int64 { return c.bytes }

func (c *givingCache) Reclaim() bool {
	if c.bytes == 0 {
		return false
	}
	*c.log = append(*c.log, c.name)
	c.bytes -= 4096
	c.m.Refund(4096)
	return true
}

// TestLargestCacheGivesFirst: room is made by blocks that nobody needs, then by the largest cache, piece by piece, and only as much as is
// wanted; without any the refusal has the numbers.
func TestLargestCacheGivesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := onTiers(t, shape(kvpage.F32, 0), 20)
		m := open(t, o)
		var log []string
		small, large := &givingCache{m, "small", 3 * 4096, &log}, &givingCache{m, "large", 6 * 4096, &log}
		for _, c := range []*givingCache{small, large} {
			if err := m.Charge(c.bytes); err != nil {
				t.Fatal(err)
			}
			m.AddReclaimer(c)
		}
		if err := m.Charge(11 * 4096); err != nil || len(log) > 0 {
			t.Fatalf("what fits: %v, %v gave", err, log)
		}
		if err := m.Charge(5 * 4096); err != nil {
			t.Fatal(err)
		}
		if want := []string{"large", "large", "large", "large", "small"}; !slices.Equal(log[:3], want[:3]) || len(log) != 5 || small.bytes+large.bytes != 4*4096 {
			t.Errorf("%v gave, want the largest each time", log)
		}
		if err := m.Charge(5 * 4096); !errors.Is(err, ErrBudget) {
			t.Errorf("more than there is: %v", err)
		}
		if small.bytes+large.bytes > 0 || m.inUse != 16*4096 || m.charged != m.inUse {
			t.Errorf("%d bytes in use, %d charged", m.inUse, m.charged)
		}
		m.RemoveReclaimer(small)
		m.RemoveReclaimer(large)
		if len(m.caches) != 0 {
			t.Error("caches are still asked")
		}
		m.Refund(16 * 4096)
		check(t, m, nil)
	})
}

// slowRing is the memory of the layers that must be there at once, tried for every layer by what is read when: the layer, the next that
// keeps tokens, and those before that a later one reads again.
func slowRing(shape cacheshape.Model, need []int) (most int) {
	var keepers []int
	for layer := range shape {
		if shape.Keeps(layer) {
			keepers = append(keepers, layer)
		}
	}
	for i, layer := range keepers {
		there := map[int]bool{layer: true, keepers[(i+1)%len(keepers)]: true}
		for _, before := range keepers[:i] {
			for reader := layer; reader < len(shape); reader++ {
				if shape.Owner(reader) == before {
					there[before] = true
				}
			}
		}
		n := 0
		for l := range there {
			n += need[l]
		}
		most = max(most, n)
	}
	return most
}

// TestRingIsWhatIsThereAtOnce compares with the slow ring over random shapes: layers of different sizes, some that share, some without KV.
func TestRingIsWhatIsThereAtOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 400 {
		var layers cacheshape.Model
		need := []int{}
		for i := range 2 + rng.IntN(8) {
			l := cacheshape.Layer{Heads: 2, Owner: i, KV: cacheshape.KV{Heads: 1, KeyDim: 32, ValueDim: 32}}
			switch rng.IntN(4) {
			case 0:
				l = cacheshape.Layer{State: cacheshape.State{Bytes: 64}}
			case 1:
				if i > 0 && layers.Owner(i-1) >= 0 {
					l = cacheshape.Layer{Heads: 2, Owner: layers.Owner(i - 1)}
				}
			}
			layers, need = append(layers, l), append(need, 0)
			if l.KV.Heads > 0 {
				need[i] = 1 + rng.IntN(9)
			}
		}
		if layers.Next(-1) < 0 || layers.Validate() != nil {
			continue
		}
		k := &backing{frames: frames{m: &Manager{o: Options{Layers: layers}, layers: make([]layerPages, len(layers))}}}
		if got, want := k.ring(need), slowRing(layers, need); got != want {
			t.Fatalf("%+v, %v: %d, want %d", layers, need, got, want)
		}
	}
}

// TestPlansStayWithinTheBudget: after any plan the blocks that are to stay, the ring of two layers, and what is written and charged beside
// them fit the budget; of every layer the same share stays; what is refused needs more than there is.
func TestPlansStayWithinTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(7, 7))
		for range 120 {
			blocks := 24 + rng.IntN(120)
			o, _ := onTiers(t, shape(kvpage.F32, 0), blocks)
			m, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			var seqs []*Sequence
			var pass []Growth
			for range 1 + rng.IntN(2) {
				s := m.NewSequence()
				g := Growth{Seq: s, Rows: 1 + rng.IntN(64), Tokens: rng.IntN(2) * rng.IntN(900), Beside: int64(rng.IntN(6)) * 4096}
				if rng.IntN(3) == 0 {
					g.Cached = []bool{true, false}
				}
				seqs, pass = append(seqs, s), append(pass, g)
			}
			need, _ := m.backing.needs(pass)
			left := blocks - m.backing.apart(pass) - int(m.backing.beside(pass)/m.unit)
			err = m.Plan(pass)
			if refused := left < slices.Max(need); refused != errors.Is(err, ErrBudget) || !refused && err != nil {
				t.Fatalf("%d of %d blocks are left for layers of %v: %v", left, blocks, need, err)
			}
			staying := 0
			for i, s := range seqs {
				for layer, quota := range s.store.(*tiered).quota {
					staying += quota
					if pass[i].Cached != nil && pass[i].Cached[layer] && quota > 0 {
						t.Fatal("a layer that a token cache serves is to stay")
					}
				}
			}
			if all := need[0] + need[1]; err == nil && staying > max(left, 0) || err == nil && staying < all && staying+slices.Max(need) > max(left, all) {
				t.Fatalf("%d blocks are to stay of %d, %d are free", staying, all, left)
			}
			if spare := m.Spare(pass[0]); len(pass) == 1 && spare != int64(blocks)*4096-int64(m.backing.ring(need)+m.backing.apart(pass))*4096-m.backing.beside(pass) {
				t.Fatalf("%d bytes are spare", spare)
			}
			for _, s := range seqs {
				s.Free()
			}
			check(t, m, nil)
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestWithoutLimits: without a budget or a store nothing is planned, and everything is spare.
func TestWithoutLimits(t *testing.T) {
	m := open(t, shape(kvpage.F32, 0))
	s := m.NewSequence()
	defer s.Free()
	if err := errors.Join(m.Plan([]Growth{{Seq: s}}), m.Settle(), s.Swaps().Await(), m.Room(1<<60)); err != nil || m.Spare(Growth{Seq: s}) != math.MaxInt64 {
		t.Errorf("%v, %d spare", err, m.Spare(Growth{Seq: s}))
	}
	if s.Swaps().Bring(0, 0); m.Backing() != nil || s.Swaps().Waited() != 0 || m.Stats().TokensRead != 0 {
		t.Error("something was read from no store")
	}
	if _, err := s.Blocks(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("blocks in host memory: %v", err)
	}
}

// TestStats: peak, pages and sequences, recomputed.
func TestStats(t *testing.T) {
	m := open(t, shape(kvpage.F16, 1<<20))
	page := int64(m.Layout(0).PageBytes())
	s := m.NewSequence()
	for n := range 40 {
		k, v := rows(m.o, 0, []int{n})
		if err := s.Append(0, k, v, []int32{int32(n)}); err != nil {
			t.Fatal(err)
		}
		want := 3 * page * int64(n/16+1)
		if st := m.Stats(); st.InUseBytes != want || st.PeakBytes != want || st.Sequences != 1 || st.BudgetBytes != 1<<20 || st.ChargedBytes != 0 {
			t.Fatalf("%d tokens: %+v, want %d bytes", n+1, st, want)
		}
	}
	if err := m.Charge(100); err != nil {
		t.Fatal(err)
	}
	m.Refund(100)
	s.Free()
	if st := m.Stats(); st.InUseBytes != 0 || st.PeakBytes != 9*page+100 || st.Sequences != 0 {
		t.Errorf("%+v", st)
	}
	if m.ResetPeak(); m.Stats().PeakBytes != 0 {
		t.Error("the peak did not begin again")
	}
}

// TestRefusalsSayWhatHelps: a refusal names the least that would do, and a tier below only where there is none.
func TestRefusalsSayWhatHelps(t *testing.T) {
	tiered, _ := onTiers(t, shape(kvpage.F32, 0), 8)
	plain := shape(kvpage.F32, 0)
	plain.BudgetBytes = 8 << 10
	for below, o := range map[bool]Options{true: tiered, false: plain} {
		err := open(t, o).Room(3<<20 + 1)
		var e *BudgetError
		if !errors.As(err, &e) || e.Below != below || strings.Contains(err.Error(), "a tier below") == below || !strings.Contains(err.Error(), "host=4MiB would do") || !strings.HasSuffix(err.Error(), "KV in fewer bits, a shorter prompt") {
			t.Errorf("a tier below %v: %v", below, err)
		}
	}
}
