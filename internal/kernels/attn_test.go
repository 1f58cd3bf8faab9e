package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels/ref"
)

// kvBytes are random payload bytes of n numbers that are finite when read as e, scales of quantised types included.
func kvBytes(rnd *rand.Rand, b []byte, e KVElem) []byte {
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	switch e {
	case KVF16, KVI8, KVI4:
		for i := 1; i < len(b); i += 2 {
			b[i] &= 0xbf // float16 below 2
		}
	case KVBF16:
		for i := 1; i < len(b); i += 2 {
			b[i] = b[i]&0x80 | 0x3e
		}
	case KVF32:
		for i := 3; i < len(b); i += 4 {
			b[i] = b[i]&0x80 | 0x3e
		}
	}
	return b
}

type tiles struct {
	e            KVElem
	keys, values [][]byte
	masks        []uint16
	group        []byte // keys that share scales
}

// newTiles makes n tiles with random masks; get provides the memory of each payload. Of int3 and int2 three tiles share scales.
func newTiles(rnd *rand.Rand, e KVElem, n, dim int, get func(size int) []byte) tiles {
	t := tiles{e: e}
	for i := range n {
		if e.Low() {
			t.low(rnd, i, dim, get)
		} else {
			t.keys = append(t.keys, kvBytes(rnd, get(e.KeyTileBytes(dim)), e))
			t.values = append(t.values, kvBytes(rnd, get(TileTokens*e.ValueRowBytes(dim)), e))
		}
		t.masks = append(t.masks, [...]uint16{0xffff, uint16(rnd.Uint32()), 0, 0x1fff, 1, 0x8000}[i%6])
	}
	return t
}

// low adds tile i of int3 or int2.
func (t *tiles) low(rnd *rand.Rand, i, dim int, get func(size int) []byte) {
	const share = 3
	scales, codes := 6*dim+2, t.e.KeyCodeBytes(dim)
	random := func(b []byte) []byte {
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	if i%share == 0 {
		t.group = random(get(scales + share*codes))
		kvBytes(rnd, t.group[:scales-2], KVF16)
		t.group[scales-2], t.group[scales-1] = byte(rnd.IntN(share*TileTokens)), 0 // the lone key's number
	}
	t.keys = append(t.keys, t.group[:scales+(i%share+1)*codes])
	size, group := t.e.ValueRowBytes(dim), t.e.ValueRowBytes(64)
	values := random(get(TileTokens * size))
	for row := 0; row < len(values); row += size {
		for at := 0; at < size; at += group {
			kvBytes(rnd, values[row+at:][:2], KVF16)
		}
	}
	t.values = append(t.values, values)
}

func normals(rnd *rand.Rand, x []float32) []float32 {
	for i := range x {
		x[i] = float32(rnd.NormFloat64())
	}
	return x
}

// nearly compares relative to the largest |want|, -Inf and NaN apart, which must be in the same places.
func nearly(got, want []float32, limit float64) error {
	top := 1e-9
	for _, w := range want {
		if !math.IsInf(float64(w), 0) {
			top = max(top, math.Abs(float64(w)))
		}
	}
	for i, w := range want {
		if g := got[i]; g != w && !(math.Abs(float64(g-w)) <= limit*top) {
			return fmt.Errorf("[%d] got %v, want %v (largest %v, limit %v of it)", i, g, w, top, limit)
		}
	}
	return nil
}

// decodeKernels runs score and weigh on the selected path and in plain Go.
func decodeKernels(rnd *rand.Rand, t tiles, heads, dim int, get func(n int) []float32) error {
	n := len(t.masks)
	q := normals(rnd, get(heads*dim))
	packed := get(heads * dim)
	PackQuery(packed, q, heads, dim, 0.5)
	s, want := get(heads*TileTokens*n), make([]float32, heads*TileTokens*n)
	ref.Score(t.e, want, packed, t.keys, t.masks, heads, dim)
	ScoreTilesThen(t.e, s, packed, t.keys, t.masks, heads, dim, t.values[:n/2])
	if err := nearly(s, want, 4e-6+t.roundedScores(packed, want, heads, dim)); err != nil {
		return fmt.Errorf("score: %w", err)
	}
	p, out := normals(rnd, get(heads*TileTokens*n)), normals(rnd, get(heads*dim))
	wantOut := append([]float32(nil), out...)
	ref.Weigh(t.e, wantOut, p, t.values, t.masks, heads, dim)
	WeighTilesThen(t.e, out, p, t.values, t.masks, heads, dim, t.keys[:n/2])
	if err := nearly(out, wantOut, 4e-6+t.roundedWeights(p, wantOut, heads, dim)); err != nil {
		return fmt.Errorf("weigh: %w", err)
	}
	return nil
}

// roundedScores is by how much of the largest |want| scores may differ where integers are multiplied: every product's first factor,
// q·scale, by half of a step of the largest one.
func (t *tiles) roundedScores(q, want []float32, heads, dim int) float64 {
	if !HasIntegerKV(t.e) {
		return 0
	}
	most := 0.0
	for _, k := range t.keys {
		for i, x := range q {
			most = max(most, math.Abs(float64(x)*halfAt(k, i/heads)))
		}
	}
	return halfSteps(t.e, most, dim, want)
}

// roundedWeights is the same of weighing: p·scale.
func (t *tiles) roundedWeights(p, want []float32, heads, dim int) float64 {
	if !HasIntegerKV(t.e) {
		return 0
	}
	most, size, n, scales, apart := 0.0, t.e.ValueRowBytes(dim)/2, len(t.masks), (dim+63)/64, 1
	switch {
	case t.e == KVI4:
		scales *= 2
	case t.e.Low():
		apart = t.e.ValueRowBytes(64) / 2
	}
	for i, x := range p {
		tile, token := i/TileTokens%n, i%TileTokens
		for g := range scales {
			most = max(most, math.Abs(float64(x)*halfAt(t.values[tile], token*size+g*apart)))
		}
	}
	return halfSteps(t.e, most, TileTokens*n, want)
}

// halfSteps is half a step of most, times the largest code, in each of n products.
func halfSteps(e KVElem, most float64, n int, want []float32) float64 {
	code, top := 127.0, 1e-9
	switch e {
	case KVI4:
		code = 15
	case KVI3, KVI2: // of values' levels
		code = 127
	}
	for _, w := range want {
		if !math.IsInf(float64(w), 0) {
			top = max(top, math.Abs(float64(w)))
		}
	}
	return most / integerMost / 2 * code * float64(n) / top
}

// halfAt is float16 number i of b.
func halfAt(b []byte, i int) float64 {
	var x [1]float32
	ref.F16ToF32(x[:], []uint16{uint16(b[2*i]) | uint16(b[2*i+1])<<8})
	return float64(x[0])
}

func heap(n int) []float32   { return make([]float32, n+1)[1:] }
func heapBytes(n int) []byte { return make([]byte, n+3)[3:] }

// TestDecodeKernels compares score and weigh with ref: all types, groups, dimensions with and without assembly, lists
// from none to more than the prefetch distance, full, partial and empty masks.
func TestDecodeKernels(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 1))
		for e := KVF32; e <= KVI2; e++ {
			for _, dim := range []int{16, 32, 64, 80, 96, 128, 160, 256, 36, 20} {
				for heads := 1; heads <= MostHeads(e); heads++ {
					for _, n := range []int{0, 1, 2, 7} {
						if err := decodeKernels(rnd, newTiles(rnd, e, n, dim, heapBytes), heads, dim, heap); err != nil {
							t.Fatalf("type %d, dim %d, heads %d, %d tiles: %v", e, dim, heads, n, err)
						}
					}
				}
			}
		}
	})
}

// TestHeadsAreAlone: a head's scores and sums do not depend on how many heads share the pass, bit for bit.
func TestHeadsAreAlone(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(2, 1))
		for e := KVF32; e <= KVI2; e++ {
			for _, dim := range []int{64, 96} {
				heads, tiles := MostHeads(e), newTiles(rnd, e, 7, dim, heapBytes)
				tokens := TileTokens * len(tiles.masks)
				q, p := normals(rnd, heap(heads*dim)), normals(rnd, heap(heads*tokens))
				run := func(first, n int) (s, out []float32) {
					packed, s, out := heap(n*dim), heap(n*tokens), heap(n*dim)
					PackQuery(packed, q[first*dim:], n, dim, 0.5)
					ScoreTiles(e, s, packed, tiles.keys, tiles.masks, n, dim)
					WeighTiles(e, out, p[first*tokens:][:n*tokens], tiles.values, tiles.masks, n, dim)
					return s, out
				}
				scores, sums := run(0, heads)
				for n := 1; n < heads; n++ {
					for first := range heads - n + 1 {
						s, out := run(first, n)
						if !slices.Equal(s, scores[first*tokens:][:n*tokens]) || !slices.Equal(out, sums[first*dim:][:n*dim]) {
							t.Fatalf("type %d, dim %d: heads %d to %d alone differ from them among %d", e, dim, first, first+n-1, heads)
						}
					}
				}
			}
		}
	})
}

// blockKernels runs the pieces of the blockwise path on the selected path and in plain Go.
func blockKernels(rnd *rand.Rand, e KVElem, dim, rows int, get func(n int) []float32, getBytes func(n int) []byte) error {
	t := newTiles(rnd, e, 1, dim, getBytes)
	panels := (dim + PanelCols - 1) / PanelCols
	keyLen, valueLen := (dim-1)*PanelCols+TileTokens, panels*TileTokens*PanelCols
	keys, wantKeys := get(keyLen), make([]float32, keyLen)
	values, wantValues := get(valueLen), make([]float32, valueLen)
	if e.Quantised() {
		k, v := getBytes(4*dim*TileTokens), getBytes(4*dim*TileTokens)
		ExpandKeys(e, k, t.keys[0], dim)
		ExpandValues(e, v, t.values[0], dim)
		PackKeys(KVF32, keys, k, dim)
		PackValues(KVF32, values, v, dim, TileTokens*PanelCols)
	} else {
		PackKeys(e, keys, t.keys[0], dim)
		PackValues(e, values, t.values[0], dim, TileTokens*PanelCols)
	}
	ref.PackKeys(e, wantKeys, t.keys[0], dim)
	ref.PackValues(e, wantValues, t.values[0], dim, TileTokens*PanelCols)
	for _, err := range []error{nearly(keys, wantKeys, 2e-7), nearly(values, wantValues, 2e-7)} {
		if err != nil {
			return fmt.Errorf("pack: %w", err)
		}
	}
	return gemmKernel(rnd, dim, rows, get)
}

func gemmKernel(rnd *rand.Rand, k, rows int, get func(n int) []float32) error {
	a, b := normals(rnd, get(rows*k)), normals(rnd, get(k*PanelCols))
	scale := normals(rnd, get(rows))
	for _, sc := range [][]float32{nil, scale} {
		c := normals(rnd, get(rows*PanelCols))
		want := append([]float32(nil), c...)
		ref.Gemm(want, PanelCols, a, k, b, k, rows, sc)
		Gemm(c, PanelCols, a, k, b, k, rows, sc)
		if err := nearly(c, want, 4e-6); err != nil {
			return fmt.Errorf("gemm: %w", err)
		}
	}
	for _, exact := range []bool{false, true} {
		if err := softmaxKernel(rnd, exact, rows, get); err != nil {
			return err
		}
	}
	return columnSums(rnd, rows, get)
}

// columnSums compares with ref every row, every third, and what is left of bf16 rows; rows between count nothing, whatever
// they are.
func columnSums(rnd *rand.Rand, rows int, get func(n int) []float32) error {
	for _, stride := range []int{1, 2, 3} {
		p, w := normals(rnd, get(rows*BlockTokens)), normals(rnd, get(rows))
		for r := range rows {
			if r%stride != 0 {
				p[r*BlockTokens], w[r] = float32(math.NaN()), float32(math.Inf(1))
			}
		}
		sums := normals(rnd, get(BlockTokens))
		want, got16, want16 := slices.Clone(sums), slices.Clone(sums), slices.Clone(sums)
		ColumnSums(p, w, stride, sums)
		ref.ColumnSums(p, w, stride, want)
		if err := nearly(sums, want, 1e-6); err != nil {
			return fmt.Errorf("column sums of %d rows, stride %d: %w", rows, stride, err)
		}
		if !HasBF16() {
			continue
		}
		p16 := make([]uint16, len(p))
		ref.F32ToBF16(p16, p)
		ColumnSumsBF16(p16, w, stride, got16)
		ref.ColumnSums(roundBF16(p), w, stride, want16)
		if err := nearly(got16, want16, 1e-6); err != nil {
			return fmt.Errorf("column sums of %d bf16 rows, stride %d: %w", rows, stride, err)
		}
	}
	return nil
}

func softmaxKernel(rnd *rand.Rand, exact bool, rows int, get func(n int) []float32) error {
	limit := 6e-6
	if exact {
		limit = 1e-6
	}
	s := normals(rnd, get(rows*BlockTokens))
	m, l, corr := normals(rnd, get(rows)), normals(rnd, get(rows*TileTokens)), get(rows)
	for i := range s {
		s[i] *= 8
		if i%7 == 0 {
			s[i] = float32(math.Inf(-1))
		}
	}
	for i := range BlockTokens { // a row that sees nothing
		s[i] = float32(math.Inf(-1))
	}
	m[0] = -1e30
	ws, wm, wl, wc := append([]float32(nil), s...), append([]float32(nil), m...), append([]float32(nil), l...), make([]float32, rows)
	ref.SoftmaxBlock(exact, ws, wm, wl, wc)
	SoftmaxBlock(exact, s, m, l, corr)
	if corr[0] != 1 || m[0] != -1e30 || s[5] != 0 {
		return fmt.Errorf("softmax of a hidden row: corr %v, m %v, weight %v; want 1, -1e30, 0", corr[0], m[0], s[5])
	}
	for i, pair := range [][2][]float32{{s, ws}, {m, wm}, {l[TileTokens:], wl[TileTokens:]}, {corr, wc}} {
		got := pair[0]
		if i == 2 { // lanes are summed in other orders
			got, pair[1] = rowSums(pair[0]), rowSums(pair[1])
		}
		if err := nearly(got, pair[1], limit); err != nil {
			return fmt.Errorf("softmax exact=%v, result %d: %w", exact, i, err)
		}
	}
	return nil
}

func rowSums(l []float32) []float32 {
	out := make([]float32, len(l)/TileTokens)
	for i, x := range l {
		out[i/TileTokens] += x
	}
	return out
}

// TestBlockKernels compares packing, product and softmax with ref for every remainder of the register tile.
func TestBlockKernels(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(2, 1))
		for e := KVF32; e <= KVI2; e++ {
			for _, dim := range []int{32, 64, 96, 256, 80, 36} {
				for _, rows := range []int{1, 2, 3, 4, 5, 6, 7, 13} {
					if err := blockKernels(rnd, e, dim, rows, heap, heapBytes); err != nil {
						t.Fatalf("type %d, dim %d, %d rows: %v", e, dim, rows, err)
					}
				}
			}
		}
	})
}

func roundBF16(x []float32) []float32 {
	half, out := make([]uint16, len(x)), make([]float32, len(x))
	ref.F32ToBF16(half, x)
	ref.BF16ToF32(out, half)
	return out
}

// TestBF16Kernels compares the bf16 kernels with float32 arithmetic on rounded inputs.
func TestBF16Kernels(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		if !HasBF16() {
			t.Skip("this path multiplies no bf16")
		}
		rnd := rand.New(rand.NewPCG(3, 1))
		for e := KVF32; e <= KVBF16; e++ {
			for _, dim := range []int{16, 64, 80, 256} {
				for _, rows := range []int{1, 5, 6, 7, 24} {
					if err := bf16Kernels(rnd, e, dim, rows); err != nil {
						t.Fatalf("type %d, dim %d, %d rows: %v", e, dim, rows, err)
					}
				}
			}
		}
	})
}

func bf16Kernels(rnd *rand.Rand, e KVElem, dim, rows int) error {
	padded := paddedRows(rows)
	q, q16 := normals(rnd, heap(rows*dim)), make([]uint16, padded*dim)
	PackRowsBF16(q16, q, 0.25)
	Scale(q, 0.25)
	q = roundBF16(q)
	keys, plain := make([]uint16, dim*PanelCols), make([]float32, dim*PanelCols)
	for i := range PanelCols / TileTokens {
		t := newTiles(rnd, e, 1, dim, heapBytes)
		PackKeysBF16(e, keys[2*i*TileTokens:], t.keys[0], dim)
		ref.PackKeys(e, plain[i*TileTokens:], t.keys[0], dim)
	}
	c, want := heap(padded*PanelCols), make([]float32, rows*PanelCols)
	GemmBF16(c, PanelCols, q16, dim, keys, dim, rows, nil)
	ref.Gemm(want, PanelCols, q, dim, roundBF16(plain), dim, rows, nil)
	if err := nearly(c[:len(want)], want, 4e-6); err != nil {
		return fmt.Errorf("scores: %w", err)
	}
	return bf16Values(rnd, e, dim, rows)
}

// paddedRows is what GemmBF16 wants room for.
func paddedRows(rows int) int {
	block := BF16RowBlock()
	return (rows + block - 1) / block * block
}

func bf16Values(rnd *rand.Rand, e KVElem, dim, rows int) error {
	s := normals(rnd, heap(rows*BlockTokens))
	m, l, corr, p := normals(rnd, heap(rows)), heap(rows*TileTokens), heap(rows), make([]uint16, paddedRows(rows)*BlockTokens)
	ws, wm, wl, wc := append([]float32(nil), s...), append([]float32(nil), m...), make([]float32, len(l)), make([]float32, rows)
	SoftmaxBlockBF16(s, p, m, l, corr)
	ref.SoftmaxBlock(false, ws, wm, wl, wc)
	weights := make([]float32, len(s))
	ref.BF16ToF32(weights, p[:len(s)])
	for i, err := range []error{nearly(weights, ws, 1.0/256), nearly(rowSums(l), rowSums(wl), 6e-6), nearly(corr, wc, 6e-6), nearly(m, wm, 0)} {
		if err != nil {
			return fmt.Errorf("softmax, result %d: %w", i, err)
		}
	}
	panels := (dim + PanelCols - 1) / PanelCols
	values, plain := make([]uint16, panels*BlockTokens*PanelCols), make([]float32, panels*BlockTokens*PanelCols)
	for i := range BlockTokens / TileTokens {
		t := newTiles(rnd, e, 1, dim, heapBytes)
		PackValuesBF16(e, values[i*TileTokens*PanelCols:], t.values[0], dim, BlockTokens*PanelCols)
		ref.PackValues(e, plain[i*TileTokens*PanelCols:], t.values[0], dim, BlockTokens*PanelCols)
	}
	for panel := range panels {
		at := panel * BlockTokens * PanelCols
		c := normals(rnd, heap(paddedRows(rows)*PanelCols))
		want := append([]float32(nil), c[:rows*PanelCols]...)
		GemmBF16(c, PanelCols, p, BlockTokens, values[at:], BlockTokens, rows, corr)
		ref.Gemm(want, PanelCols, weights, BlockTokens, roundBF16(plain[at:at+BlockTokens*PanelCols]), BlockTokens, rows, corr)
		if err := nearly(c[:len(want)], want, 4e-6); err != nil {
			return fmt.Errorf("outputs of panel %d: %w", panel, err)
		}
	}
	return nil
}

// FuzzAttentionKernels compares decode and block kernels with ref on shapes of the fuzzer's choice; the limits are
// those beside the comparisons: 4e-6 of the largest sum.
func FuzzAttentionKernels(f *testing.F) {
	f.Add(uint64(1), uint8(1), uint8(3), uint8(4), uint8(9))
	f.Fuzz(func(t *testing.T, seed uint64, elem, heads, dims, n uint8) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		e, h, dim, count := KVElem(elem%7), 1+int(heads%GroupHeads), 4*(1+int(dims%80)), int(n%20)
		defer Select("")
		for _, path := range Available() {
			if err := Select(path); err != nil {
				t.Fatal(err)
			}
			if err := decodeKernels(rnd, newTiles(rnd, e, count, dim, heapBytes), h, dim, heap); err != nil {
				t.Errorf("%s: type %d, dim %d, heads %d, %d tiles: %v", path, e, dim, h, count, err)
			}
			if err := blockKernels(rnd, e, dim, 1+count, heap, heapBytes); err != nil {
				t.Errorf("%s: type %d, dim %d, %d rows: %v", path, e, dim, 1+count, err)
			}
		}
	})
}
