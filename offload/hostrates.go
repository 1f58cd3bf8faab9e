package offload

import (
	"time"

	"terrace/internal/clock"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// HostRates are what the host's cores and memory do, measured, in bytes a second.
type HostRates struct {
	Threads int `json:"threads"`
	// Scan is HillInfer's f_c by the type in which keys are scored: bytes of f16 KV a second, a token's key and value counted
	// although scoring reads the key alone.
	Scan map[string]float64 `json:"scan_kv_bytes_per_s"`
	// Copy is B_c: bytes copied a second from memory to memory, by one thread.
	Copy float64 `json:"copy_bytes_per_s"`
}

// The scanned keys: heads of 64 and groups of 3 queries (SmolLM2's); the type of least bytes still exceeds the caches.
const (
	scanDim   = 64
	scanGroup = 3
	scanBytes = 96 << 20 // of f16 keys
)

// MeasureHost measures this host's rates with the kernels in use.
func MeasureHost(threads int, each time.Duration) HostRates {
	pool := kernels.NewPool(threads)
	defer pool.Close()
	r := HostRates{Threads: pool.Threads(), Scan: map[string]float64{}}
	for _, e := range []kvpage.Elem{kvpage.F16, kvpage.I8, kvpage.I4} {
		r.Scan[e.String()] = scanRate(pool, e, each)
	}
	r.Copy = copyRate(each)
	return r
}

// scanRate scores all tiles again and again and counts the f16 KV bytes of the tokens scored.
func scanRate(pool *kernels.Pool, e kvpage.Elem, each time.Duration) float64 {
	l := kvpage.Layout{K: e, V: e, KeyDim: scanDim, ValueDim: scanDim, Tokens: kvpage.Tile}
	tiles := scanBytes / (kvpage.Tile * scanDim * 2)
	mem := AlignedBytes(tiles * l.KTileBytes())
	defer FreeAligned(mem)
	for i := range mem {
		mem[i] = byte(i*7) & 0x3b // finite numbers as f16, whatever they are as codes
	}
	kinds := map[kvpage.Elem]kernels.KVElem{kvpage.F16: kernels.KVF16, kvpage.I8: kernels.KVI8, kvpage.I4: kernels.KVI4}
	const run = 64 // tiles a task
	keys := make([][]byte, tiles)
	for i := range keys {
		keys[i] = mem[i*l.KTileBytes() : (i+1)*l.KTileBytes()]
	}
	masks := make([]uint16, run)
	for i := range masks {
		masks[i] = 0xffff
	}
	q := make([]float32, scanDim*scanGroup)
	for i := range q {
		q[i] = float32(i%5) - 2
	}
	scores := make([][]float32, pool.Threads())
	for i := range scores {
		scores[i] = make([]float32, scanGroup*kvpage.Tile*run)
	}
	score := func(worker, i int) {
		kernels.ScoreTiles(kinds[e], scores[worker], q, keys[i*run:(i+1)*run], masks, scanGroup, scanDim)
	}
	pool.Run(tiles/run, score) // warm
	c, rounds := clock.Real(), 0
	start := c.Now()
	for rounds == 0 || c.Now()-start < each {
		pool.Run(tiles/run, score)
		rounds++
	}
	tokens := float64(rounds * (tiles / run * run) * kvpage.Tile)
	return tokens * scanDim * 4 / (c.Now() - start).Seconds()
}

// copyRate copies between buffers that no cache holds.
func copyRate(each time.Duration) float64 {
	const n = 64 << 20
	mem := AlignedBytes(2 * n)
	defer FreeAligned(mem)
	for i := range mem { // pages that are really there
		mem[i] = byte(i)
	}
	c, rounds := clock.Real(), 0
	start := c.Now()
	for rounds == 0 || c.Now()-start < each {
		copy(mem[n:], mem[:n])
		rounds++
	}
	return float64(rounds) * n / (c.Now() - start).Seconds()
}
