package retrieval

import (
	"errors"
	"fmt"
	"testing"

	"terrace/csdshim"
	"terrace/kvmanager"
	"terrace/policy"
)

// TestPlansHoldWhatComes: what a plan leaves free beside pages (index, token cache without its slots) is never less than what is charged
// for it at the prompt's end and in each step.
func TestPlansHoldWhatComes(t *testing.T) {
	for _, c := range []struct {
		policy string
		with   setup
	}{
		{"quest:budget=64", setup{}}, {"quest:budget=64", setup{blocks: 400}}, {"hillinfer:alpha=0.2", setup{blocks: 400}}, {"hillinfer:alpha=0.2,score=int4", setup{blocks: 400}},
		{"hillinfer:alpha=0.2,score=fp16", setup{}}, {"topk:budget=40", setup{blocks: 400}}, {"sparq:budget=40,sketch=storage", setup{blocks: 500}}, {"kvswap:budget=64", setup{blocks: 600}},
		{"retroinfer", setup{blocks: 600}}, {"retroinfer:cluster=8,update=8,recent=4", setup{blocks: 600}}, {"pqcache", setup{}}, {"infinigen", setup{}}, {"leoam", setup{blocks: 400}},
	} {
		bubble(t, fmt.Sprint(c.policy, c.with.blocks), func(t *testing.T) {
			spec := parsed(t, c.policy)
			c.with.edit = func(o *Options, _ *kvmanager.Options) {
				o.Shape.Observed = unitBases(o.Shape.Model)
			}
			s := openScenario(t, spec, c.with)
			defer s.close(t)
			for _, n := range []int{40, 220, 400} {
				x := s.text(t, "a", spec)
				if x.sel == nil {
					t.Fatal("nothing selects")
				}
				index := x.sel.below.MostBytesOf(0, 0)
				for layer := range s.shared.o.Shape.Layers {
					index += x.IndexBytes(layer, n, n)
				}
				if err := s.prompt(x, n, 64); err != nil {
					t.Fatal(err)
				}
				if x.SketchBytes() > index {
					t.Errorf("%d tokens: an index of %d bytes, %d was the most", n, x.SketchBytes(), index)
				}
				ca, _ := x.res.(*cached)
				for range 10 {
					var most int64
					if ca != nil {
						most = x.sel.charged + ca.cache.Sizes().Fixed + ca.budget.beside(&kvmanager.Growth{Seq: x.seq, Rows: 1})
					}
					if err := s.step(x); err != nil {
						t.Fatal(err)
					}
					s.check(t)
					if ca == nil {
						continue
					}
					if used := x.sel.charged + ca.cache.Sizes().Fixed; used > most {
						t.Errorf("%d tokens: a step takes %d bytes beside the pages, %d was the most", x.Read(), used, most)
					}
				}
				if err := x.Free(); err != nil {
					t.Fatal(err)
				}
				delete(s.texts, "a")
			}
		})
	}
}

// unitBases are decompositions whose directions are the numbers of a key.
func unitBases(m policy.Model) []policy.Observed {
	heads, all := policy.NewDecomposition(m), policy.NewKeyBasis(m)
	for layer := range m.Layers {
		for g := range m.Layers[layer].KV.Heads {
			for d := range 32 {
				heads.Head(layer, g)[d*32+d] = 1
			}
		}
		for d := range 64 {
			all.Head(layer, 0)[d*64+d] = 1
		}
	}
	return []policy.Observed{{Of: policy.QueryBasis{}, Value: heads}, {Of: policy.KeyBasis{}, Value: all}}
}

// TestCachesShareTheBudget: each of several token caches may have its share, a newcomer takes from the others, and who goes gives back;
// together they never exceed what there is.
func TestCachesShareTheBudget(t *testing.T) {
	bubble(t, "share", func(t *testing.T) {
		spec := parsed(t, "hillinfer:alpha=0.2")
		s := openScenario(t, spec, setup{blocks: 260})
		defer s.close(t)
		var texts []*scenarioText
		var limits []int
		for i := range 4 {
			x := s.text(t, fmt.Sprint("text ", i), spec)
			if err := s.prompt(x, 300, 64); err != nil {
				t.Fatal(err)
			}
			texts = append(texts, x)
			for range 3 {
				if err := s.step(texts...); err != nil {
					t.Fatal(err)
				}
				s.check(t)
			}
			c := texts[0].res.(*cached)
			limits = append(limits, c.budget.limit)
			if c.budget.sharers != i+1 || c.budget.limit != c.budget.capacity(int(texts[0].Read())) && c.budget.limit > c.budget.hotCapacity(int(texts[0].Read())) {
				t.Errorf("%d texts: the first's cache of %d slots is one of %d", i+1, c.budget.limit, c.budget.sharers)
			}
		}
		for i := 1; i < len(limits); i++ {
			if limits[i] > limits[i-1]+3*i { // the text has grown
				t.Errorf("slots of the first as others came: %v", limits)
			}
		}
		for len(texts) > 1 {
			if err := texts[len(texts)-1].Free(); err != nil {
				t.Fatal(err)
			}
			delete(s.texts, fmt.Sprint("text ", len(texts)-1))
			texts = texts[:len(texts)-1]
		}
		if err := s.step(texts...); err != nil {
			t.Fatal(err)
		}
		if now := texts[0].res.(*cached).budget.limit; now < limits[0] {
			t.Errorf("alone again it may have %d slots, %d before", now, limits[0])
		}
	})
}

// slowCapacity is how many slots a shard may have, recomputed from what is charged: the sequence's share of the budget less what it has
// beside its slots, two blocks a layer for the newest tokens, tables, and a step's selection.
func (c *cached) slowCapacity(n int) int {
	f := c.t.f
	share := (f.o.BudgetBytes - f.charged) / int64(max(f.caches, 1))
	if c.drive == nil {
		share -= c.t.sel.charged
	}
	newest := int64(len(f.o.Shape.Layers)+8) * int64(f.o.KV.BlockBytes())
	tables := int64(4 * n / c.cache.Sizes().Granule * c.cache.Sizes().Shards)
	selection := max(int64(n)/4*f.mostBytes(1)-c.cache.Sizes().Scratch, 0)
	slot := c.cache.Sizes().Slot
	if c.drive != nil {
		slot += 64 // an 8-bit key of two heads of 32
	}
	return int(max(share-c.cache.Sizes().Fixed-newest-tables-selection, 0)) / c.cache.Sizes().Shards / slot
}

// TestCapacityIsWhatIsLeft: slots are what the budget leaves, recomputed from scratch after every step.
func TestCapacityIsWhatIsLeft(t *testing.T) {
	for _, with := range []setup{{blocks: 150}, {blocks: 400}, {blocks: 400, codes: csdshim.CodesInt8}} {
		bubble(t, fmt.Sprint(with.blocks, with.codes), func(t *testing.T) {
			spec := parsed(t, "hillinfer:alpha=0.2")
			s := openScenario(t, spec, with)
			defer s.close(t)
			x := s.text(t, "a", spec)
			if err := s.prompt(x, 300, 64); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if err := s.step(x); err != nil {
					t.Fatal(err)
				}
				c, n := x.res.(*cached), int(x.Read())
				if got, want := c.budget.capacity(n), c.slowCapacity(n); got != want {
					t.Errorf("%d slots a shard, want %d", got, want)
				}
				if got, want := c.budget.hotCapacity(n), min(n, c.slowCapacity(n)); got != want {
					t.Errorf("%d tokens may be hot, want %d", got, want)
				}
			}
		})
	}
}

// TestRowsBetweenLayers: the rows of a prompt that passes layer by layer take a quarter of the budget at most, whole chunks of it, are
// charged once, and come back.
func TestRowsBetweenLayers(t *testing.T) {
	bubble(t, "rows", func(t *testing.T) {
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{blocks: 400})
		defer s.close(t)
		x := s.text(t, "a", spec)
		const row = 512
		budget := s.shared.o.BudgetBytes
		n := s.shared.HoldRows(x.Sequence, 1500, 1500, row)
		if n <= 64 || n%64 != 0 || int64(n)*row > budget/rowsShare || int64(n+64)*row <= budget/rowsShare && s.shared.o.KV.Spare(x.res.growth(kvmanager.Growth{Seq: x.seq, Rows: 64, Tokens: 1500})) > int64(n+64)*row {
			t.Errorf("%d rows of %d bytes, the budget is %d", n, row, budget)
		}
		s.check(t)
		if again := s.shared.HoldRows(x.Sequence, 1500, 1500, row); again != 0 {
			t.Errorf("%d rows more", again)
		}
		s.shared.DropRows()
		s.check(t)
		if in := s.shared.o.KV.Stats().InUseBytes; in != s.shared.StoreBytes() {
			t.Errorf("%d bytes in use", in)
		}
		if n := s.shared.HoldRows(x.Sequence, 40, 40, row); n != 0 {
			t.Errorf("%d rows of a prompt of one chunk are held", n)
		}
		plain := openScenario(t, spec, setup{})
		defer plain.close(t)
		if n := plain.shared.HoldRows(plain.text(t, "a", spec).Sequence, 1000, 1000, row); n != 0 || plain.shared.Tiered() || plain.shared.Recovers() || !s.shared.Recovers() {
			t.Errorf("without tiers %d rows are held", n)
		}
	})
}

// TestIndexBudgetIsRefused: where the index does not fit, the prompt is refused as too large for memory, by name, and nothing is left.
func TestIndexBudgetIsRefused(t *testing.T) {
	bubble(t, "index", func(t *testing.T) {
		spec := parsed(t, "hillinfer:alpha=0.2,score=fp16")
		s := openScenario(t, spec, setup{edit: func(_ *Options, ko *kvmanager.Options) { ko.BudgetBytes = 220 << 10 }})
		defer s.close(t)
		x := s.text(t, "a", spec)
		err := s.prompt(x, 270, 300)
		if !errors.Is(err, kvmanager.ErrBudget) {
			t.Fatalf("an index beside a full cache: %v", err)
		}
		s.check(t)
		if n := s.shared.o.KV.Stats().ChargedBytes; n != 0 {
			t.Errorf("%d bytes charged", n)
		}
	})
}
