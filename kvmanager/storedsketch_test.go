package kvmanager

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"terrace/attention/keyindex"
	"terrace/internal/kvpage"
	"terrace/offload"
)

// pairs are sketches of one layer and KV head, in memory and on the lower tier.
type pairs struct {
	memory, below         *keyindex.Columns
	inMemory, boundsBelow *keyindex.Bounds
}

// newPairs makes them share the head's stream.
func newPairs(t *TileStream, elem kvpage.Elem, rows int) *pairs {
	p := &pairs{keyindex.NewColumns(elem, rows), keyindex.NewColumns(elem, rows), keyindex.NewBounds(3, rows), keyindex.NewBounds(3, rows)}
	p.below.KeepBelow(t)
	p.boundsBelow.KeepBelow(t)
	return p
}

func (p *pairs) add(rng *rand.Rand) {
	x := make([]float32, p.memory.Rows())
	for d := range x {
		x[d] = float32(rng.NormFloat64())
	}
	i := p.memory.Len()
	p.memory.Put(i, x)
	p.below.Put(i, x)
	p.inMemory.Add(x, 1, 1)
	p.boundsBelow.Add(x, 1, 1)
}

// differ reports a score that is not the same to the bit.
func (p *pairs) differ(rng *rand.Rand, heads int) error {
	q := make([]float32, heads*p.memory.Rows())
	for i := range q {
		q[i] = float32(rng.NormFloat64())
	}
	for what, n := range map[string]int{"products": p.memory.Len(), "bounds": p.inMemory.Blocks()} {
		want, got := make([]float32, heads*n), make([]float32, heads*n)
		if what == "products" {
			p.memory.Score(want, q, heads)
			p.below.Score(got, q, heads)
		} else {
			p.inMemory.Score(want, q, heads)
			p.boundsBelow.Score(got, q, heads)
		}
		if !slices.Equal(want, got) {
			return fmt.Errorf("%s of %d columns differ", what, n)
		}
	}
	return nil
}

// TestStoredSketches: sketches on the lower tier score as those in memory do, to the bit, while they grow; what is full of
// them is not in memory, reads are of whole layers, and Free leaves nothing.
func TestStoredSketches(t *testing.T) {
	for _, elem := range []kvpage.Elem{kvpage.F16, kvpage.F32} {
		for _, rows := range []int{1, 6, 13, 32} {
			t.Run(fmt.Sprint(elem, "/rows", rows), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := shape(kvpage.F16, 0)
					equal(&o, 5, o.Layers[0].KV.Heads, o.Layout.KeyDim, o.Layout.ValueDim)
					o, d := onTiers(t, o, 20000)
					m, err := New(o)
					if err != nil {
						t.Fatal(err)
					}
					s := m.NewStoredSketches()
					rng := rand.New(rand.NewPCG(uint64(rows), uint64(elem)))
					all := make([][]*pairs, len(o.Layers))
					for layer := range all {
						for g := range o.Layers[0].KV.Heads {
							all[layer] = append(all[layer], newPairs(s.Stream(layer, g), elem, rows))
						}
					}
					for step := range 9 {
						for layer := range all {
							for range []int{700, 1, 60}[step%3] {
								for g := range all[layer] {
									all[layer][g].add(rng)
								}
							}
							if err := s.Flush(layer); err != nil {
								t.Fatal(err)
							}
							if layer == 1 && step%4 < 2 { // a layer that is not scored at every step
								s.Begin(layer)
								if err := s.End(layer); err != nil {
									t.Fatal(err)
								}
								continue
							}
							s.Begin(layer)
							for g := range all[layer] {
								if err := all[layer][g].differ(rng, 1+step%5); err != nil {
									t.Fatalf("step %d, layer %d, head %d: %v", step, layer, g, err)
								}
							}
							if err := s.End(layer); err != nil {
								t.Fatal(err)
							}
						}
					}
					if n, whole := all[0][0].below.Bytes(), all[0][0].memory.Bytes(); 2*n > whole || reads(d) == 0 {
						t.Errorf("%d bytes in memory of %d, want the last tile and offsets; %d records were read", n, whole, reads(d))
					}
					if held, most := s.charged, s.MostBytes(); held > most || m.charged != held {
						t.Errorf("%d bytes held, at most %d were announced, %d are charged", held, most, m.charged)
					}
					if err := s.Free(); err != nil {
						t.Fatal(err)
					}
					if stored(d) != 0 || m.charged != 0 {
						t.Errorf("%d records and %d charged bytes are left", stored(d), m.charged)
					}
				})
			})
		}
	}
}

// TestStoredSketchesFail: a record that cannot be written or read is an error, and scores are zeros.
func TestStoredSketchesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, d := onTiers(t, shape(kvpage.F16, 0), 5000)
		m, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		s, rng, bad := m.NewStoredSketches(), rand.New(rand.NewPCG(1, 1)), errors.New("bad")
		var heads []*pairs
		for g := range o.Layers[0].KV.Heads {
			heads = append(heads, newPairs(s.Stream(0, g), kvpage.F16, 32))
			for range 900 {
				heads[g].add(rng)
			}
		}
		d.Fail = func(offload.Key, bool) error { return bad }
		if err := s.Flush(0); !errors.Is(err, bad) {
			t.Errorf("writing: %v", err)
		}
		d.Change(func() { d.Fail = nil })
		if err := s.Flush(0); err != nil {
			t.Fatal(err)
		}
		d.Fail = func(_ offload.Key, write bool) error { return bad }
		got := []float32{1: 1, 900: 0}
		heads[0].below.Score(got[:900], make([]float32, 32), 1)
		if err := s.End(0); !errors.Is(err, bad) || got[1] != 0 {
			t.Errorf("reading: %v, score %g", err, got[1])
		}
		d.Change(func() { d.Fail = nil })
		s.Begin(0)
		if err := heads[0].differ(rng, 2); err != nil {
			t.Error(err)
		}
		if err := errors.Join(s.End(0), s.Free()); err != nil || stored(d) > 0 {
			t.Errorf("%v, %d records are left", err, stored(d))
		}
	})
}
