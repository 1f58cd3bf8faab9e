package xcache

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/internal/cacheshape"
	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/offload"
	"terrace/weights"
	"terrace/weights/convert"
)

// TestPays against the two times worked out one after the other.
func TestPays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	paid := 0
	for range 2000 {
		c := Cost{KVBytes: 1 + rng.IntN(1<<16), RowBytes: 1 + rng.IntN(1<<16), FLOPs: math.Exp(rng.Float64() * 18)}
		r := Rates{TierBytes: math.Exp(rng.Float64() * 22), FLOPs: math.Exp(rng.Float64() * 28)}
		rows := float64(c.RowBytes) / r.TierBytes
		again := rows + c.FLOPs/r.FLOPs
		if whole := float64(c.KVBytes) / r.TierBytes; c.Pays(r) != (again < whole) {
			t.Fatalf("%+v at %+v: pays %v, a row takes %g s and keys and values %g s", c, r, c.Pays(r), again, whole)
		}
		if c.Pays(r) {
			paid++
		}
	}
	if paid < 200 || paid > 1800 {
		t.Errorf("%d of 2000 pay: the cases say little", paid)
	}
	if (Cost{KVBytes: 8, RowBytes: 4}).Pays(Rates{}) {
		t.Error("unknown rates pay")
	}
	// SmolLM2-135M: a row of 576 f32 numbers has three times the bytes of 384 of f16, whatever the rates.
	if (Cost{KVBytes: 768, RowBytes: 2304, FLOPs: 2 * 576 * 384}).Pays(Rates{TierBytes: 1, FLOPs: 1e15}) {
		t.Error("SmolLM2's rows pay")
	}
}

// TestSpread: so many layers as the share has, no two shares of neighbours more than one apart, and none that keeps nothing.
func TestSpread(t *testing.T) {
	costs := make([]Cost, 40)
	for i := range costs {
		if i%4 != 3 {
			costs[i] = Cost{KVBytes: 2, RowBytes: 1}
		}
	}
	for n := 1; n <= 30; n++ {
		c := Spread(costs, float64(n)/30)
		if rows, all := c.Count(); rows != n || all != 30 {
			t.Errorf("share %d/30: %d of %d", n, rows, all)
		}
		seen, taken := 0, 0
		for i, keeps := range c.Layers {
			if costs[i].KVBytes == 0 {
				if keeps {
					t.Fatalf("layer %d keeps nothing", i)
				}
				continue
			}
			if seen++; keeps {
				taken++
			}
			if off := float64(taken) - float64(seen*n)/30; off > 1e-6 || off < -1 {
				t.Fatalf("share %d/30: %d of the first %d layers", n, taken, seen)
			}
		}
	}
}

// fakeProjector makes a block's bytes from its rows, its first position and the first block's arithmetic; rows that begin with NaN give others than they were made with.
type fakeProjector struct{ calls int }

func (p *fakeProjector) blocks(layer int, of []block, x []float32, dst [][]byte) error {
	p.calls++
	d := len(x) / len(of)
	for i, b := range of {
		b.phase = of[0].phase
		copy(dst[i], bytesOf(layer, b, x[i*d:(i+1)*d], len(dst[i])))
		if math.IsNaN(float64(x[i*d])) {
			dst[i][0]++
		}
	}
	return nil
}

func bytesOf(layer int, b block, x []float32, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(layer) ^ byte(b.first) ^ byte(math.Float32bits(x[i%len(x)])>>(8*(i%4))) ^ byte(b.phase<<4)
	}
	return out
}

const hidden = 6

// failing is a store whose writes fail.
type failing struct {
	offload.Store
	fails bool
}

var errDevice = errors.New("device")

func (f *failing) Write(ctx context.Context, recs []offload.Record) error {
	if f.fails {
		return errDevice
	}
	return f.Store.Write(ctx, recs)
}

func open(t *testing.T, reserve int64) (*Store, *offload.Memory, *failing) {
	t.Helper()
	shape := offload.Shape{Layers: cacheshape.Equal(3, 4, cacheshape.KV{Heads: 2, KeyDim: 8, ValueDim: 8}), Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, Tokens: 16}, GroupTokens: 16}
	o := Options{Shape: shape, Hidden: hidden, Layers: []bool{false, true, true}, ReserveBytes: reserve}
	below, err := offload.NewMemory("m", Shape(o), 0)
	if err != nil {
		t.Fatal(err)
	}
	f := &failing{Store: below}
	s := newStore(f, &fakeProjector{}, o)
	t.Cleanup(func() { s.Close() })
	return s, below, f
}

// rows are those of n positions from one on.
func rows(from, n int) (x []float32, pos, lens []int32) {
	for i := range n {
		pos, lens = append(pos, int32(from+i)), append(lens, 100)
		for d := range hidden {
			x = append(x, float32(from+i)+float32(d)/7)
		}
	}
	return x, pos, lens
}

func every(int) bool { return true }

// TestStoreAgainstPlain: whatever is kept, cut, written and read in whatever order, a store of rows reads what a plain store of keys and
// values does.
func TestStoreAgainstPlain(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	s, _, _ := open(t, 1<<20)
	shape := s.Shape()
	plain := map[offload.Key][]byte{}
	length := map[offload.Key]int{} // tokens of seq and layer
	for range 4000 {
		seq, layer := uint64(rng.IntN(2)), rng.IntN(3)
		text := offload.Key{Seq: seq, Layer: int32(layer)}
		switch rng.IntN(8) {
		case 0, 1, 2, 3: // rows are added, and blocks that are full are written
			from, n := length[text], 1+rng.IntN(40)
			x, pos, lens := rows(from, n)
			if rng.IntN(6) == 0 {
				x[rng.IntN(n)*hidden] = float32(math.NaN())
			}
			phase := []kernels.Phase{kernels.Prefill, kernels.Decode}[rng.IntN(5)/4]
			s.Keep(seq, layer, phase, x, pos, lens, func(int) bool { return true })
			length[text] = from + n
			for g := from / 16; g < (from+n)/16; g++ {
				k := offload.Key{Seq: seq, Layer: int32(layer), Group: int32(g)}
				data := make([]byte, shape.RecordBytes(layer))
				if first := g*16 - from; first >= 0 && rng.IntN(8) > 0 {
					copy(data, bytesOf(layer, block{phase, int32(g * 16), 100}, x[first*hidden:(first+16)*hidden], len(data)))
				} else { // somebody has changed it, or its rows are of two passes
					for i := range data {
						data[i] = byte(rng.Uint32())
					}
				}
				if err := s.Write(t.Context(), []offload.Record{{Key: k, Data: bytes.Clone(data)}}); err != nil {
					t.Fatal(err)
				}
				plain[k] = data
			}
		case 4: // a text is cut
			length[text] = rng.IntN(length[text] + 1)
		case 5:
			if rng.IntN(20) == 0 {
				for k := range plain {
					if k.Seq == seq {
						delete(plain, k)
					}
				}
				for l := range int32(3) {
					length[offload.Key{Seq: seq, Layer: l}] = 0
				}
				if err := s.Drop(seq); err != nil {
					t.Fatal(err)
				}
			}
		default:
			var recs []offload.Record
			for k, data := range plain {
				r := offload.Record{Key: k, Data: make([]byte, len(data))}
				if rng.IntN(4) == 0 {
					r.Part, r.Data = offload.Part{First: 1, N: 1}, r.Data[:len(data)/2]
				}
				if recs = append(recs, r); len(recs) == 9 {
					break
				}
			}
			if err := s.Read(t.Context(), recs); err != nil {
				t.Fatal(err)
			}
			for _, r := range recs {
				want := plain[r.Key]
				if r.Part.N > 0 {
					want = want[len(want)/2:]
				}
				if !bytes.Equal(r.Data, want) {
					t.Fatalf("%v part %v: other bytes", r.Key, r.Part)
				}
			}
		}
	}
	if u := s.Use(); u.RowBlocks < 500 || u.KVBlocks < 100 || u.ProjectedRows == 0 {
		t.Errorf("want many blocks of both kinds: %+v", u)
	}
	for seq := range uint64(2) {
		if err := s.Drop(seq); err != nil {
			t.Fatal(err)
		}
	}
	if s.waits != 0 || len(s.kept) != 0 || len(s.staged) != 0 {
		t.Errorf("%d bytes wait, %d blocks are known after all was dropped", s.waits, len(s.kept))
	}
}

// TestRoomOfRows: rows beyond the reserve are forgotten and their blocks are keys and values (invariant 2); what is lent takes more; blocks that
// will not be written keep none; host memory counts the reserve from the beginning.
func TestRoomOfRows(t *testing.T) {
	const blockBytes = 16 * hidden * 4
	s, below, _ := open(t, 2*blockBytes)
	if got := s.Stats().HostBytes - below.Stats().HostBytes; got != 2*blockBytes {
		t.Errorf("%d bytes of host memory, want the reserve", got)
	}
	x, pos, lens := rows(0, 5*16)
	s.Keep(1, 1, kernels.Prefill, x, pos, lens, func(g int) bool { return g != 1 })
	if got := groups(s); !slices.Equal(got, []int32{0, 2}) {
		t.Errorf("blocks %v wait, want 0 and 2", got)
	}
	s.Lend(blockBytes)
	s.Keep(1, 1, kernels.Prefill, x, pos, lens, every)
	if got := groups(s); !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("blocks %v wait, want 0, 1, 2", got)
	}
	if got := s.Stats().HostBytes - below.Stats().HostBytes; got != 3*blockBytes {
		t.Errorf("%d bytes of host memory, want three blocks", got)
	}
	s.Keep(1, 0, kernels.Prefill, x, pos, lens, every) // a layer of keys and values
	if len(s.staged) != 3 {
		t.Errorf("%d blocks wait", len(s.staged))
	}
	s.Keep(1, 1, kernels.Prefill, x[:8*hidden], pos[:8], lens[:8], every)
	s.Keep(1, 1, kernels.Decode, x[8*hidden:16*hidden], pos[8:16], lens[8:16], every) // no arithmetic gives such a block's bytes
	if got := groups(s); !slices.Equal(got, []int32{1, 2}) {
		t.Errorf("blocks %v wait, want 1 and 2", got)
	}
}

func groups(s *Store) (list []int32) {
	for k := range s.staged {
		list = append(list, k.Group)
	}
	slices.Sort(list)
	return list
}

// TestWriteThatFails: a write is tried again with the same rows, and is what it was until it has ended well.
func TestWriteThatFails(t *testing.T) {
	s, _, f := open(t, 1<<20)
	x, pos, lens := rows(0, 16)
	s.Keep(1, 2, kernels.Prefill, x, pos, lens, every)
	k := offload.Key{Seq: 1, Layer: 2}
	data := bytesOf(2, block{kernels.Prefill, 0, 100}, x, s.Shape().RecordBytes(2))
	recs := []offload.Record{{Key: k, Data: data}}
	f.fails = true
	if err := s.Write(t.Context(), recs); !errors.Is(err, errDevice) {
		t.Fatal(err)
	}
	if u := s.Use(); u.RowBlocks != 0 || len(s.staged) != 1 {
		t.Errorf("after a write that failed: %+v, %d blocks wait", u, len(s.staged))
	}
	f.fails = false
	if err := s.Write(t.Context(), recs); err != nil {
		t.Fatal(err)
	}
	if u := s.Use(); u.RowBlocks != 1 || len(s.staged) != 0 {
		t.Errorf("after the second: %+v, %d blocks wait", u, len(s.staged))
	}
	if st := s.Stats(); st.WrittenBytes != 16*hidden*4 {
		t.Errorf("%d bytes were written, a block of rows has %d", st.WrittenBytes, 16*hidden*4)
	}
}

// TestProjectorAgainstReference: keys and values of a layer's rows as one would work them out by hand: the norm, the product, the turn.
func TestProjectorAgainstReference(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	spec := convert.Spec{Arch: "llama", Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 96, Vocab: 300, Context: 512, Seed: 3}
	spec.SetDefaults()
	if err := convert.Synthesize(t.Context(), path, spec, convert.Options{Type: quant.F32}); err != nil {
		t.Fatal(err)
	}
	file, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	shape := offload.Shape{Layers: m.Cache(), Page: kvpage.Layout{K: kvpage.F32, V: kvpage.F32, Tokens: 16}, GroupTokens: 16}
	p, err := NewProjector(m, shape, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if c := p.Cost(1); c != (Cost{KVBytes: 2 * 2 * 16 * 4, RowBytes: 256, FLOPs: 2 * 64 * 64}) {
		t.Errorf("cost %+v", c)
	}
	rng := rand.New(rand.NewPCG(5, 5))
	x := make([]float32, 32*64)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	of := []block{{kernels.Exact, 48, 80}, {kernels.Exact, 16, 80}}
	dst := [][]byte{make([]byte, shape.RecordBytes(1)), make([]byte, shape.RecordBytes(1))}
	if err := p.blocks(1, of, x, dst); err != nil {
		t.Fatal(err)
	}
	l, layout := &m.Params.Layers[1], shape.PageOf(1)
	got := make([]float32, 16)
	for i, b := range of {
		for r := range 16 {
			normed := normByHand(t, m, x[(i*16+r)*64:(i*16+r+1)*64], l.AttnNorm)
			for g := range 2 {
				page := dst[i][g*layout.PageBytes() : (g+1)*layout.PageBytes()]
				key, value := multiplyByHand(t, l.K, normed, g), multiplyByHand(t, l.V, normed, g)
				for j := range 8 { // neighbours are turned together
					angle := float64(int(b.first)+r) * math.Pow(10000, -float64(2*j)/16)
					c, s := math.Cos(angle), math.Sin(angle)
					key[2*j], key[2*j+1] = key[2*j]*c-key[2*j+1]*s, key[2*j]*s+key[2*j+1]*c
				}
				kvpage.ReadK(layout, page, r, got)
				near(t, "key", got, key)
				kvpage.ReadV(layout, page, r, got)
				near(t, "value", got, value)
			}
		}
	}
}

func normByHand(t *testing.T, m *model.Model, x []float32, norm model.NormParams) []float64 {
	t.Helper()
	w, err := norm.W.Values()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range x {
		sum += float64(f) * float64(f)
	}
	out := make([]float64, len(x))
	for i := range x {
		out[i] = float64(x[i]) / math.Sqrt(sum/float64(len(x))+float64(m.NormEps)) * float64(w[i])
	}
	return out
}

func multiplyByHand(t *testing.T, w *model.Linear, x []float64, head int) []float64 {
	t.Helper()
	row, out := make([]float32, len(x)), make([]float64, 16)
	for i := range out {
		if err := w.Row(row, head*16+i); err != nil {
			t.Fatal(err)
		}
		for j := range x {
			out[i] += float64(row[j]) * x[j]
		}
	}
	return out
}

func near(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	for i := range want {
		if d := math.Abs(float64(got[i]) - want[i]); d > 1e-4 {
			t.Fatalf("%s number %d is %g, want %g", what, i, got[i], want[i])
		}
	}
}

// TestChoiceSays its figures.
func TestChoiceSays(t *testing.T) {
	text := Choose([]Cost{{KVBytes: 2000, RowBytes: 1000, FLOPs: 5e5}, {}}, Rates{TierBytes: 1e6, FLOPs: 1e9}).String()
	for _, want := range []string{"1 of 1 layers", "row 1000.00 µs and keys and values 2000.00 µs", "0.50 MFLOP at 1.0 GFLOP/s takes 500.00 µs"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
}
