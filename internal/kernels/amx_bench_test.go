//go:build linux && amd64 && !purego

package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"terrace/internal/cputime"
	"terrace/internal/kernels/amd64/amx"
	"terrace/internal/kernels/quant"
)

// BenchmarkTilePeak is what the matrix unit of one core can do: products of tiles that stay in registers, without a load.
func BenchmarkTilePeak(b *testing.B) {
	if current != isaAMX {
		b.Skip("needs AMX")
	}
	rnd, tiles := rand.New(rand.NewPCG(1, 2)), [2][4096]byte{}
	for i := range tiles[0] {
		tiles[1][i] = byte(rnd.Uint32())
		if i%2 == 1 {
			tiles[1][i] = tiles[1][i]&0x81 | 0x3c // bf16 of 2^-7 to 2^-6
		}
	}
	for _, p := range []struct {
		name string
		run  func(config, data *byte, n int)
		size float64
	}{{"bf16", amx.PeakBF16, 2 * 16 * 16 * 32}, {"int8", amx.PeakInt8, 2 * 16 * 16 * 64}} {
		for i, data := range []string{"zeros", "random"} {
			b.Run(p.name+"/"+data, func(b *testing.B) {
				const n = 10000
				start := cputime.Used()
				for b.Loop() {
					p.run(&tileConfig[0], &tiles[i][0], n)
				}
				b.ReportMetric(4*n*p.size*float64(b.N)/(cputime.Used()-start).Seconds()/1e9, "GOPS/core")
			})
		}
	}
}

// BenchmarkTiles multiplies panels of so many steps with 16 groups of rows, over and over: the share of BenchmarkTilePeak that
// loads of tiles leave.
func BenchmarkTiles(b *testing.B) {
	if current != isaAMX {
		b.Skip("needs AMX")
	}
	for _, steps := range []int{4, 8, 12, sliceSteps, 24, 32, 64} {
		for _, fresh := range []bool{true, false} {
			b.Run(fmt.Sprintf("steps=%d/fresh=%v", steps, fresh), func(b *testing.B) {
				panel, act := make([]byte, steps*stepBytes+4096), make([]byte, blockRows*steps*stepBytes)
				sums := make([]float32, blockRows*groupRows*groupRows)
				for i := range act { // pages of their own: pages never written are all one
					act[i], panel[i%len(panel)] = byte(i)&0x3f, byte(i)&0x3f
				}
				for i := range sums {
					sums[i] = 1
				}
				from := &sums[0]
				if fresh {
					from = nil
				}
				start := cputime.Used()
				for b.Loop() {
					amxMachine.matrix.multiply(&tileConfig[0], &tileArgs{dst: &sums[0], strideBytes: groupRows * 4, from: from, panel: &panel[0], panel2: &panel[1024], panelStep: stepBytes,
						act: &act[0], groupBytes: uintptr(steps * stepBytes), steps: steps, groups: blockRows, nextAct: uintptr(unsafe.Pointer(&act[0])), nextTile: &panel[0]})
				}
				size := 2 * float64(blockRows*groupRows) * groupRows * float64(steps*recordCols)
				b.ReportMetric(size*float64(b.N)/(cputime.Used()-start).Seconds()/1e9, "GOPS/core")
			})
		}
	}
}

// BenchmarkTileShapes runs the matrices of Llama 3.2 1B on 512 rows of activations.
func BenchmarkTileShapes(b *testing.B) {
	for _, typ := range []quant.Type{quant.BF16, quant.Q4_K, quant.Q8_0} {
		for _, s := range []benchShape{{"qkv", 3072, 2048}, {"up", 8192, 2048}, {"down", 2048, 8192}} {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%v/%s/threads=%d", typ, s.name, threads), func(b *testing.B) {
					benchMatMul(b, Prefill, typ, s.rows, s.cols, 512, threads, 0)
				})
			}
		}
	}
}
