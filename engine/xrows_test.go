package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/kernels/quant"
	"terrace/internal/kvpage"
	"terrace/internal/tierspec"
	"terrace/internal/vfs"
	"terrace/model"
	"terrace/weights/convert"
)

// onRows is an engine on an ssd tier of which a share of the layers keeps rows.
func onRows(t testing.TB, m *model.Model, o Options, host int64, share tierspec.XCache) *Engine {
	t.Helper()
	o.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: host}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 32 << 20, XCache: share}}
	return openOn(t, m, o)
}

// family is a random model of an architecture, all of whose heads have keys of their own.
func family(t testing.TB, arch string) *model.Model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	s := convert.Spec{Arch: arch, Layers: 3, Hidden: 128, Heads: 4, KVHeads: 4, HeadDim: 32, FFN: 192, Vocab: 300, Context: 2048, Seed: 11}
	s.SetDefaults()
	if err := convert.Synthesize(t.Context(), path, s, convert.Options{Type: quant.Q8_0}); err != nil {
		t.Fatal(err)
	}
	return openFile(t, path)
}

// TestRowsBelowChangeNothing: layers whose rows lie below instead of keys and values compute the same logits, bit for bit, in chunks
// and in sections, alone and in a batch, whatever the layer does to its keys, and within the budget.
func TestRowsBelowChangeNothing(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 1), fakes.IDs(20, 2)
	for name, c := range map[string]struct {
		arch string
		o    Options
	}{
		"llama":               {"llama", Options{}},
		"llama exact":         {"llama", Options{Exact: true}},
		"llama turned values": {"llama", Options{Rotate: RotateBoth}},
		"biases":              {"qwen2", Options{}},
		"norms":               {"qwen3", Options{}},
		"norm behind":         {"olmo2", Options{}},
		"f32":                 {"llama", Options{KType: kvpage.F32, VType: kvpage.F32, KVTypeSet: true}},
		"other types":         {"llama", Options{KType: kvpage.BF16, VType: kvpage.F32, KVTypeSet: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, o := family(t, c.arch), c.o
			o.Threads, o.ChunkTokens = 2, 32
			want := forced(t, openOn(t, m, o), prompt, next)
			little := int64(420 << 10) // the prompt goes by chunks
			if o.Exact || o.KVTypeSet {
				little = 660 << 10
			}
			for _, x := range []struct {
				share tierspec.XCache
				host  int64
			}{{1, 680 << 10}, {0.5, 600 << 10}, {1, little}} {
				e := onRows(t, m, o, x.host, x.share)
				if d := fakes.Worst(want, forced(t, e, prompt, next)); d != 0 {
					t.Errorf("share %v, %d bytes: logits differ by %g", x.share, x.host, d)
				}
				u := e.TierUse()
				if layers := max(1, int(3*x.share)); u.XCache.Layers != layers || u.XCache.RowBlocks == 0 || u.XCache.ProjectedRows == 0 {
					t.Errorf("share %v, %d bytes: want %d layers of rows, written and read: %+v", x.share, x.host, layers, u.XCache)
				}
				if u.PeakBytes["host"] > x.host {
					t.Errorf("share %v: %d bytes in host memory, the budget is %d", x.share, u.PeakBytes["host"], x.host)
				}
			}
			e := onRows(t, m, o, 1800<<10, 1)
			if d := fakes.Worst(want, inBatch(t, e, prompt, next)); d != 0 {
				t.Errorf("in a batch: logits differ by %g", d)
			}
			if u := e.TierUse().XCache; u.CheckedRows != 16*u.RowBlocks {
				t.Errorf("in a batch: %d rows checked, and %d blocks of 16 were those of the cache", u.CheckedRows, u.RowBlocks)
			}
		})
	}
}

// TestRowsBelowBytes against arithmetic: 32 blocks of a prompt and two of generated text, of 16 tokens in 3 layers, are 512 bytes a token
// as rows and 1,024 as f32 keys and values, whoever writes and reads them.
func TestRowsBelowBytes(t *testing.T) {
	t.Parallel()
	m := family(t, "llama")
	o := Options{Threads: 1, ChunkTokens: 32, KType: kvpage.F32, VType: kvpage.F32, KVTypeSet: true}
	prompt, next := fakes.IDs(512, 1), fakes.IDs(33, 2)
	for _, c := range []struct {
		share       tierspec.XCache
		rows, plain int64 // layers
	}{{0, 0, 3}, {0.34, 1, 2}, {0.67, 2, 1}, {1, 3, 0}} {
		e := onRows(t, m, o, 900<<10, c.share)
		forced(t, e, prompt, next)
		if err := e.kv.Settle(); err != nil {
			t.Fatal(err)
		}
		u := e.TierUse()
		written, blocks := u.MovedBytes["host>ssd"], u.XCache.RowBlocks
		if u.XCache.KVBlocks != 0 {
			t.Errorf("%d layers: %d blocks as keys and values", c.rows, u.XCache.KVBlocks)
		}
		if c.rows == 0 {
			if written%(16*1024*3) != 0 || written == 0 {
				t.Errorf("keys and values: %d bytes", written)
			}
			continue
		}
		each := blocks / c.rows // what stays in memory is the same of every layer
		if want := 16 * each * (512*c.rows + 1024*c.plain); written != want || each < 10 {
			t.Errorf("%d layers: %d bytes of %d blocks each, want %d", c.rows, written, each, want)
		}
		if u.XCache.CheckedRows != 16*blocks {
			t.Errorf("%d layers: %d rows checked of %d blocks", c.rows, u.XCache.CheckedRows, blocks)
		}
		if read := u.ReadBytes; c.plain == 0 && read != 512*u.XCache.ProjectedRows {
			t.Errorf("%d bytes read for %d rows", read, u.XCache.ProjectedRows)
		}
	}
}

// TestRowsBelowWhileTextsChange: a text that is taken back in the middle of a block, and forks, which store under numbers of their own,
// read what they would without a tier.
func TestRowsBelowWhileTextsChange(t *testing.T) {
	t.Parallel()
	m, o := family(t, "llama"), Options{Threads: 1, ChunkTokens: 32}
	prompt, next, other := fakes.IDs(200, 1), fakes.IDs(60, 2), fakes.IDs(60, 3)
	run := func(e *Engine) (out [][]float32) {
		t.Helper()
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		decode := func(s *Session, ids []int) {
			for _, id := range ids {
				if err := s.Decode(id); err != nil {
					t.Fatal(err)
				}
				out = append(out, append([]float32(nil), s.Logits()...))
			}
		}
		if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		decode(s, next)
		fork, err := s.Fork(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer fork.Close()
		decode(fork, other)
		if err := s.Rewind(221); err != nil {
			t.Fatal(err)
		}
		decode(s, other)
		decode(fork, next)
		return out
	}
	want, e := run(openOn(t, m, o)), onRows(t, m, o, 500<<10, 1)
	if d := fakes.Worst(want, run(e)); d != 0 {
		t.Errorf("logits differ by %g", d)
	}
	if u := e.TierUse().XCache; u.ProjectedRows == 0 || u.KVBlocks == 0 {
		t.Errorf("want blocks of both kinds: %+v", u)
	}
}

// TestRowsBelowOfManyTexts: rows of texts that decode together are each text's own, and none wait but for blocks that are not full: what stays
// in memory keeps none.
func TestRowsBelowOfManyTexts(t *testing.T) {
	t.Parallel()
	e := onRows(t, family(t, "llama"), Options{Threads: 1, ChunkTokens: 32, Batch: 3}, 900<<10, 1)
	var texts []*Session
	for i := range 3 {
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), fakes.IDs(150+i, uint64(i)), PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, s)
	}
	read := e.TierUse().XCache
	for i := range 60 { // to 210, 211 and 212 tokens
		if err := e.DecodeBatch(texts, []int{i, i + 1, i + 2}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.kv.Settle(); err != nil {
		t.Fatal(err)
	}
	u := e.TierUse().XCache
	if u.CheckedRows != 16*u.RowBlocks || u.RowBlocks < read.RowBlocks+3*3*2 {
		t.Errorf("want at least two blocks of generated text a layer and text, all of them good: %+v, after the prompts %+v", u, read)
	}
	if want := int64(3 * 3 * 16 * 512); u.WaitingBytes != want {
		t.Errorf("%d bytes of rows wait, want %d: a block a text and layer", u.WaitingBytes, want)
	}
	e = onRows(t, e.m, Options{Threads: 1, ChunkTokens: 32}, 8<<20, 1) // all stays
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), fakes.IDs(150, 1), PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	if u := e.TierUse().XCache; u.WaitingBytes != 0 || u.RowBlocks+u.KVBlocks != 0 {
		t.Errorf("nothing goes down, and %d bytes of rows wait: %+v", u.WaitingBytes, u)
	}
}

// TestRowsBelowOnAFaultyDisk: rows that fail to be written or read, or come back with a bit turned, end in equal numbers or in one clear error.
func TestRowsBelowOnAFaultyDisk(t *testing.T) {
	t.Parallel()
	m, prompt, next := family(t, "llama"), fakes.IDs(250, 1), fakes.IDs(8, 2)
	want, good, struck := forced(t, openOn(t, m, Options{Threads: 1, ChunkTokens: 32}), prompt, next), 0, int64(0)
	for seed := range uint64(8) {
		chance := []float64{0.01, 0.2}[seed%2]
		faults := &vfs.Faults{Seed: seed, After: 8, Chance: map[vfs.OpKind]float64{vfs.OpRead: chance, vfs.OpWrite: chance}, Kinds: []vfs.FaultKind{vfs.EIO, vfs.Flip, vfs.Short}}
		o := Options{Threads: 1, ChunkTokens: 32, Machine: tier.Machine{Disk: &vfs.Faulty{FS: vfs.NewMem(32 << 20), Faults: faults}}}
		o.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: 460 << 10}, {Kind: tier.SSD, Place: "d", CapacityBytes: 16 << 20, XCache: 1}}
		e := openOn(t, m, o)
		got, err := attempt(t, e, prompt, next)
		sound(t, fmt.Sprint("seed ", seed), want, got, err)
		if err == nil {
			good++
		}
		_, n := faults.Ops()
		struck += n
		faults.Stop()
	}
	if good < 2 || struck < 20 {
		t.Errorf("%d of 8 texts came through %d faults", good, struck)
	}
}

// TestRowsBelowByRate: a slow tier makes layers keep rows, a fast one does not, and what was chosen is said with its figures.
func TestRowsBelowByRate(t *testing.T) {
	t.Parallel()
	m := family(t, "llama")
	o := Options{Threads: 1, KType: kvpage.F32, VType: kvpage.F32, KVTypeSet: true}
	for _, c := range []struct {
		rate float64
		want string
	}{{1e3, "3 of 3 layers keep rows (512 bytes a token and layer, keys and values 1024)"}, {1e15, "0 of 3 layers keep rows"}} {
		o.TierRate = c.rate
		e := onRows(t, m, o, 8<<20, tierspec.XCacheByRate)
		if n := e.TierUse().Notice; !strings.Contains(n, c.want) || !strings.Contains(n, "GFLOP/s takes") {
			t.Errorf("at %g bytes a second: %q, want %q", c.rate, n, c.want)
		}
	}
	o.TierRate, o.KVTypeSet = 1e3, false // f16: a row has as many bytes
	if n := onRows(t, m, o, 8<<20, tierspec.XCacheByRate).TierUse().Notice; !strings.Contains(n, "0 of 3 layers keep rows (512 bytes a token and layer, keys and values 512)") {
		t.Errorf("rows of as many bytes: %q", n)
	}
}

// TestRowsBelowRefused: what cannot be projected again, in one line.
func TestRowsBelowRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		arch string
		o    Options
		more []tier.Tier
		want string
	}{
		{"llama", Options{Policy: "h2o:budget=60"}, nil, "under policy h2o"},
		{"llama", Options{KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true}, nil, "fewer bytes than rows"},
		{"llama", Options{Backend: "gorgonia"}, nil, "backend gorgonia"},
		{"llama", Options{}, []tier.Tier{{Kind: tier.SSD, Place: "x", CapacityBytes: 64 << 20}}, "want this one alone"},
		{"lfm2", Options{}, nil, "recurrent layers (layer"},
		{"deepseek2", Options{}, nil, "latent keys"},
	} {
		o := c.o
		o.Tiers = append([]tier.Tier{{Kind: tier.Host, CapacityBytes: 8 << 20}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 32 << 20, XCache: 1}}, c.more...)
		e, err := Open(family(t, c.arch), o)
		if err == nil {
			e.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || !errors.Is(err, model.ErrUnsupported) && !errors.Is(err, ErrOption) {
			t.Errorf("%s: %v, want %q", c.arch, err, c.want)
		}
	}
}
