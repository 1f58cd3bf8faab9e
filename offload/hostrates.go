package offload

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"terrace/internal/clock"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/internal/storage"
	"terrace/policy"
)

// HostRates are what the host's cores and memory do, measured, in bytes a second.
type HostRates struct {
	Threads int `json:"threads"`
	// Scan is HillInfer's f_c by the type in which keys are scored: bytes of f16 KV a second, a token's key and value counted
	// although scoring reads the key alone.
	Scan map[string]float64 `json:"scan_kv_bytes_per_s"`
	// ByShape is the same for more shapes of a token's keys, as in "int8/8x128": KV heads and numbers each.
	ByShape map[string]float64 `json:"scan_kv_bytes_per_s_by_shape,omitempty"`
	// Copy is B_c: bytes copied a second from memory to memory, by one thread.
	Copy float64 `json:"copy_bytes_per_s"`
	// Check is how many bytes that were read one thread compares with their checksums in a second.
	Check float64 `json:"check_bytes_per_s,omitempty"`
}

// ScanRate is f_c for keys scored in a type: as measured for the shape, else for the shape of the nearest size, else for any.
func (r *HostRates) ScanRate(elem kvpage.Elem, kvHeads, keyDim int) float64 {
	if rate := r.ByShape[shapeName(elem, kvHeads, keyDim)]; rate > 0 {
		return rate
	}
	rate, least := r.Scan[elem.String()], math.Inf(1)
	for _, s := range scanShapes {
		off := math.Abs(math.Log(float64(s.heads*s.dim) / float64(kvHeads*keyDim)))
		if x := r.ByShape[shapeName(elem, s.heads, s.dim)]; x > 0 && off < least {
			rate, least = x, off
		}
	}
	return rate
}

func shapeName(elem kvpage.Elem, kvHeads, keyDim int) string {
	return fmt.Sprintf("%v/%dx%d", elem, kvHeads, keyDim)
}

// scanShapes are what is measured: SmolLM2-135M's, Gemma-3-270M's and Llama-3.1-8B's.
var scanShapes = []struct{ heads, dim int }{{3, 64}, {1, 256}, {8, 128}}

const (
	hostBytes = 96 << 20 // of f16 keys: the type of least bytes still exceeds the caches
	scanChunk = 1024     // tokens of a task

	briefBytes = 24 << 20 // between two buffers
)

// HostOptions say how a host's rates are measured.
type HostOptions struct {
	Threads int           // 0 = all processors
	Each    time.Duration // for how long each rate
	Clock   clock.Clock   // by which; nil = clock.Real. One of the processor's time counts nothing of what else runs, where Threads is 1
	Bytes   int           // of keys that are scanned; two thirds of them are copied, and checked; 0 = more than caches hold, 96 MiB
}

// MeasureHost measures this host's rates with the kernels in use.
func MeasureHost(o HostOptions) HostRates {
	if o.Bytes <= 0 {
		o.Bytes = hostBytes
	}
	c, pool := clock.Or(o.Clock), kernels.NewPool(o.Threads)
	defer pool.Close()
	r := HostRates{Threads: pool.Threads(), Scan: map[string]float64{}, ByShape: map[string]float64{}}
	for _, e := range []kvpage.Elem{kvpage.F16, kvpage.I8, kvpage.I4} {
		for _, s := range scanShapes {
			r.ByShape[shapeName(e, s.heads, s.dim)] = scanRate(c, pool, e, s.heads, s.dim, o.Bytes, o.Each)
		}
		r.Scan[e.String()] = r.ByShape[shapeName(e, scanShapes[0].heads, scanShapes[0].dim)]
	}
	r.Copy, r.Check = copyRate(c, o.Bytes/3*2, o.Each), checkRate(c, o.Bytes/3*2, o.Each)
	return r
}

// MeasureHostBriefly measures in less than a second, on threads, what a model's tokens need whose keys have so many heads and numbers:
// each rate for a thirtieth of a second, on less memory than MeasureHost, but more than caches hold.
func MeasureHostBriefly(threads, heads, dim int) HostRates {
	const each = time.Second / 30
	pool := kernels.NewPool(threads)
	defer pool.Close()
	r := HostRates{Threads: pool.Threads(), Scan: map[string]float64{}, ByShape: map[string]float64{}}
	for _, e := range []kvpage.Elem{kvpage.F16, kvpage.I8, kvpage.I4} {
		rate := scanRate(clock.Real(), pool, e, heads, dim, hostBytes/3, each)
		r.Scan[e.String()], r.ByShape[shapeName(e, heads, dim)] = rate, rate
	}
	r.Copy = copyRate(clock.Real(), briefBytes, each)
	return r
}

// checkRate sums the pages of records that no cache holds, n bytes.
func checkRate(c clock.Clock, n int, each time.Duration) float64 {
	const page = 4 << 10
	n -= n % page
	mem := AlignedBytes(n)
	defer FreeAligned(mem)
	for i := range mem {
		mem[i] = byte(i)
	}
	rounds, sum := 0, uint32(0)
	start := c.Now()
	for rounds == 0 || c.Now()-start < each {
		for at := 0; at < n; at += page {
			sum ^= storage.Checksum(mem[at : at+page])
		}
		rounds++
	}
	runtime.KeepAlive(sum)
	return float64(rounds) * float64(n) / (c.Now() - start).Seconds()
}

// scanRate scores all tokens again and again as hillinfer does, one query a layer: the products of each KV head by the kernel
// that runs for the type, their sum, and its rounding to half precision. It counts the f16 KV bytes of the tokens scored.
func scanRate(c clock.Clock, pool *kernels.Pool, e kvpage.Elem, heads, dim, bytes int, each time.Duration) float64 {
	const tiles = scanChunk / kvpage.Tile
	tile := kvpage.Tile * dim * 2
	codes := map[kvpage.Elem]kernels.CodeElem{kvpage.I8: kernels.Codes8, kvpage.I4: kernels.Codes4}
	code, integer := codes[e]
	if integer {
		tile = kvpage.CodeTileBytes(e, dim)
	}
	chunks := max(bytes/(scanChunk*heads*dim*2), 1)
	mem := AlignedBytes(chunks * heads * tiles * tile)
	defer FreeAligned(mem)
	for i := range mem {
		mem[i] = byte(i*7) & 0x3b // finite numbers as f16, whatever they are as codes
	}
	floats, ints := make([]float32, heads*dim), make([]int8, dim)
	if integer {
		ints = make([]int8, code.CodeDim(dim))
	}
	for i := range floats {
		floats[i] = float32(i%5) - 2
	}
	for i := range ints[:dim] {
		ints[i] = int8(i%5) - 2
	}
	masks := slices.Repeat([]uint16{0xffff}, tiles)
	scratch := make([]scanScratch, pool.Threads())
	for i := range scratch {
		scratch[i] = scanScratch{make([]float32, scanChunk), make([]float32, scanChunk), make([]int32, scanChunk), make([]int32, scanChunk), make([][]byte, tiles)}
	}
	score := func(worker, chunk int) {
		w := &scratch[worker]
		clear(w.scores)
		clear(w.sums)
		for g := range heads {
			keys := mem[(chunk*heads+g)*tiles*tile:][:tiles*tile]
			if integer {
				kernels.DotCodes(code, w.dots, scanChunk, ints, keys, 1, dim)
				for i, x := range w.dots {
					w.sums[i] += x
				}
				continue
			}
			for i := range w.keys {
				w.keys[i] = keys[i*tile : (i+1)*tile]
			}
			kernels.ScoreTiles(kernels.KVF16, w.part, floats[g*dim:(g+1)*dim], w.keys, masks, 1, dim)
			for i, x := range w.part {
				w.scores[i] += x
			}
		}
		if integer {
			for i, x := range w.sums {
				w.scores[i] = float32(x)
			}
		}
		policy.RoundScores(w.scores, 6)
	}
	pool.Run(chunks, score) // warm
	rounds := 0
	start := c.Now()
	for rounds == 0 || c.Now()-start < each {
		pool.Run(chunks, score)
		rounds++
	}
	return float64(rounds*chunks*scanChunk) * float64(heads*dim*4) / (c.Now() - start).Seconds()
}

// scanScratch is a thread's.
type scanScratch struct {
	scores, part []float32
	sums, dots   []int32
	keys         [][]byte
}

// copyRate copies n bytes between buffers that no cache holds.
func copyRate(c clock.Clock, n int, each time.Duration) float64 {
	mem := AlignedBytes(2 * n)
	defer FreeAligned(mem)
	for i := range mem { // pages that are really there
		mem[i] = byte(i)
	}
	rounds := 0
	start := c.Now()
	for rounds == 0 || c.Now()-start < each {
		copy(mem[n:], mem[:n])
		rounds++
	}
	return float64(rounds) * float64(n) / (c.Now() - start).Seconds()
}
