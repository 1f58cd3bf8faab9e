package engine

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/kernels/quant"
	"terrace/internal/kvpage"
	"terrace/offload"
	"terrace/weights/convert"
)

// storing are policies whose sketches lie on the lower tier, where they say so or always.
var storing = []string{"infinigen:budget=60,sketch=", "infinigen:budget=60,query=exact,alpha=20,dense_layers=0,sketch=", "infinigen:budget=60,query=prev_step,partial=1,sketch=",
	"leoam:budget=60,chunk=4,coarse=8,sketch=", "leoam:budget=60,flat=1,sketch=", "quest:budget=60,page=4,sketch=", "snapkv:budget=200+quest:budget=60,page=4,sketch=", "pqcache:budget=60,bits=4,sketch=", "h2o_offload:budget=60", "sparq:budget=60,rank=9,sketch=", "sparq:budget=60,rank=25%,mean_value=false,sketch=", "knorm:budget=200+h2o_offload:budget=60"}

// TestStoredSketchesChangeNothing: with sketches on the lower tier logits are those of sketches in memory and of no tiers, bit
// for bit, alone and in a batch, in half and single precision and with quantised KV (each policy in one of them); and they are read
// from there.
func TestStoredSketchesChangeNothing(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(350, 1), fakes.IDs(40, 2)
	kinds := []struct {
		name string
		o    Options
	}{{"half", Options{}}, {"exact", Options{Exact: true}}, {"int8", Options{KVTypeSet: true, KType: kvpage.I8, VType: kvpage.I4, KVWindow: 32}}}
	for i, name := range storing {
		kind := kinds[i%len(kinds)]
		t.Run(kind.name+"/"+strings.NewReplacer(":", " of ", "=", " ").Replace(name), func(t *testing.T) {
			t.Parallel()
			o := kind.o
			o.Threads, o.ChunkTokens, o.Calibration = 2, 64, fakes.IDs(64, 3)
			o.Store, o.KVBudgetBytes, o.Policy = nil, 0, strings.Replace(name+" ", "sketch= ", "sketch=memory", 1)
			want := forced(t, small(t, o), prompt, next)
			o.Policy = strings.Replace(name+" ", "sketch= ", "sketch=storage", 1)
			if d := fakes.Worst(want, forced(t, small(t, o), prompt, next)); d != 0 {
				t.Errorf("without tiers: logits differ by %g", d)
			}
			o.Store = below(t, o)
			o.KVBudgetBytes = 540 << 10
			if strings.HasPrefix(name, "sparq") { // whole keys are its sketch: the least named is 688 KiB
				o.KVBudgetBytes = 700 << 10
			}
			if o.Exact {
				o.KVBudgetBytes *= 2
			}
			e := small(t, o)
			if d := fakes.Worst(want, forced(t, e, prompt, next)); d != 0 {
				t.Errorf("on tiers: logits differ by %g", d)
			}
			if p := e.KV().PeakBytes; p > o.KVBudgetBytes {
				t.Errorf("%d bytes in host memory, the budget is %d", p, o.KVBudgetBytes)
			}
			o.KVBudgetBytes *= 2
			if d := fakes.Worst(want, inBatch(t, small(t, o), prompt, next)); d != 0 {
				t.Errorf("on tiers in a batch: logits differ by %g", d)
			}
		})
	}
}

// TestStoredSketchesOnDrive: a computational storage drive holds the sketches as an SSD does.
func TestStoredSketchesOnDrive(t *testing.T) {
	prompt, next := fakes.IDs(700, 1), fakes.IDs(20, 2)
	for _, name := range []string{"infinigen:budget=60,sketch=storage", "leoam:budget=60,chunk=4,coarse=8,sketch=storage", "h2o_offload:budget=60"} {
		o := Options{Threads: 2, ChunkTokens: 64, Calibration: fakes.IDs(64, 3), Policy: name}
		want := forced(t, small(t, o), prompt, next)
		o.Tiers = newTestDrive(t).start().tiers(900 << 10)
		if d := fakes.Worst(want, forced(t, small(t, o), prompt, next)); d != 0 {
			t.Errorf("%s: logits differ by %g", name, d)
		}
	}
}

// tally is a store that counts what is read of each sequence.
type tally struct {
	offload.Store
	mu   sync.Mutex
	read map[uint64]int
}

func (c *tally) Read(ctx context.Context, recs []offload.Record) error {
	c.mu.Lock()
	for _, r := range recs {
		c.read[r.Key.Seq] += len(r.Data)
	}
	c.mu.Unlock()
	return c.Store.Read(ctx, recs)
}

// forget takes a sequence out of the count.
func (c *tally) forget(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.read, seq)
}

// TestStoredSketchesAreStored: with sketch=storage the low-rank keys are records of their own, which every step reads, and are
// not in host memory.
func TestStoredSketchesAreStored(t *testing.T) {
	prompt, next := fakes.IDs(900, 1), fakes.IDs(10, 2)
	path := filepath.Join(t.TempDir(), "deep.gguf") // more layers than are in memory at once
	if err := convert.Synthesize(t.Context(), path, convert.Spec{Arch: "llama", Layers: 6, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 32,
		FFN: 96, Vocab: 300, Context: 2048, Seed: 5}, convert.Options{Type: quant.Q8_0}); err != nil {
		t.Fatal(err)
	}
	sketch := map[string]int64{}
	for _, where := range []string{"memory", "storage"} {
		o := Options{Threads: 1, Policy: "infinigen:budget=30,dense_layers=0,sketch=" + where, Calibration: fakes.IDs(64, 3), ChunkTokens: 64}
		shape := openModel(t, path, o).shape()
		store, err := offload.NewMemory("below", shape, 0)
		if err != nil {
			t.Fatal(err)
		}
		count := &tally{Store: store, read: map[uint64]int{}}
		o.Store, o.KVBudgetBytes = count, 1800<<10
		e := openModel(t, path, o)
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		count.forget(s.text.Seq().Home())
		for _, id := range next {
			if err := s.Decode(id); err != nil {
				t.Fatal(err)
			}
		}
		sketch[where] = s.KVUse().SketchBytes
		home := s.text.Seq().Home()
		s.Close() // waits for what is under way
		count.forget(home)
		var read int
		for _, n := range count.read {
			read += n
		}
		// 900 tokens of 6 layers and 2 heads, 6 half-precision numbers each; full tiles in whole records.
		if want := len(next) * 880 * 6 * 2 * 6 * 2; where == "storage" && (read < want*8/10 || read > want*11/10) || where == "memory" && read > 0 {
			t.Errorf("sketch=%s: %d bytes of sketches were read in %d steps, they are %d", where, read, len(next), want)
		}
	}
	if sketch["storage"]*4 > sketch["memory"] {
		t.Errorf("%d bytes of sketches in memory, %d where all of them are", sketch["storage"], sketch["memory"])
	}
}
