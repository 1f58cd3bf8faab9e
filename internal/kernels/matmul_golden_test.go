package kernels

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"

	"terrace/internal/kernels/quant"
)

// integerResults are hashes of the bits that the integer arithmetic gives for one product of each type. Its sums are exact
// and the float32 operations on them are the same in the same order, so that AVX2, AVX-512, NEON, SDOT and SMMLA agree.
// AVX-512 joins the halves of a record first where they have scales of their own, and is left out there.
var integerResults = map[quant.Type]uint64{
	quant.Q4_0:   0xd70db004e3d76e06,
	quant.Q4_1:   0x9e175a8a68f1cbcc,
	quant.Q5_0:   0xeeb11e8e08048ffb,
	quant.Q5_1:   0x94c1ce31eadccf54,
	quant.Q8_0:   0xa46a54cbaf685b44,
	quant.Q2_K:   0xa00aecb1b1d6673f,
	quant.Q3_K:   0x6c150bd5adce00e1,
	quant.Q4_K:   0x1ccffafc6daa8518,
	quant.Q5_K:   0x1201edce07447108,
	quant.Q6_K:   0x787008dd4a79e72f,
	quant.IQ4_NL: 0xe3ee3d69f83a4b9b,
	quant.IQ4_XS: 0xc70dcba10dc3f174,
	quant.MXFP4:  0x7cacc29b40503562,

	quant.IQ2_XXS: 0xd696d9e4edcb070b,
	quant.IQ2_XS:  0x2b569176a8dd7235,
	quant.IQ3_XXS: 0x00ed5f3eeecf1b42,
	quant.IQ1_S:   0x228dd157bc636080,
	quant.IQ3_S:   0x48434d9b24d1af1f,
	quant.IQ2_S:   0xdaa44b21dda89a14,
	quant.IQ1_M:   0x135ef525ebf02a3b,
	quant.TQ1_0:   0x13f960b6a1e23eb9,
	quant.TQ2_0:   0x6c8a6243489d205e,
	quant.NVFP4:   0x0c027bea23f6309d,

	quant.NVFP4_F32: 0xae78de2d16f8d566,
}

// scaledHalves are the types whose records have two scales.
var scaledHalves = map[quant.Type]bool{
	quant.Q2_K: true, quant.Q3_K: true, quant.Q6_K: true, quant.NVFP4: true, quant.NVFP4_F32: true, quant.IQ1_S: true, quant.IQ1_M: true, quant.IQ2_XS: true, quant.IQ2_S: true,
}

// TestIntegerResultsAreThoseOfEveryMachine: amd64 and arm64, with every set of instructions, give the same bits.
func TestIntegerResultsAreThoseOfEveryMachine(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		if simd == nil {
			t.Skip("plain Go has no integer arithmetic")
		}
		pool := NewPool(2)
		defer pool.Close()
		for _, typ := range quant.Types() {
			if simd.tiles[typ].dot == nil || scaledHalves[typ] && (current == isaAVX512 || current == isaAMX) {
				continue
			}
			const rows, cols, n = 35, 768, 7
			rnd := rand.New(rand.NewPCG(8, uint64(typ)))
			m := newMatrix(t, typ, rows, cols, randomWeights(rnd, typ, rows, cols))
			x, dst := make([]float32, n*cols), make([]float32, n*rows)
			for i := range x { // without functions that architectures round differently
				x[i] = float32(int32(rnd.Uint32())) * float32(int(1)<<rnd.IntN(6)) / (1 << 32)
			}
			pool.MatMul(Decode, x, n, Product{W: m, Dst: dst})
			sum := fnv.New64a()
			for _, v := range dst {
				_ = binary.Write(sum, binary.LittleEndian, math.Float32bits(v))
			}
			if got := sum.Sum64(); got != integerResults[typ] {
				t.Errorf("%v: the results hash to %#x, want %#x", typ, got, integerResults[typ])
			}
		}
	})
}
