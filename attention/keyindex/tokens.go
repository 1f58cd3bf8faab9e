package keyindex

import (
	"terrace/internal/kernels"
	"terrace/policy"
)

// TokenScan scores a layer's small-integer keys for a policy that ranks tokens by one number each: the sum over all KV heads,
// computed on all threads, a chunk of tokens each. The zero value is ready; it keeps its scratch and serves one call at a
// time.
type TokenScan struct {
	query []int8 // [KVHeads][QueryDim]
	of    *Index
	dst   []float32
	shift int
	sums  [][]int32 // [threads][2·ChunkTokens] scratch
	run   func(worker, chunk int)
}

// CanScan reports whether the index holds small integers, which a TokenScan scores.
func (x *Index) CanScan() bool { return x.heads[0].codes != nil }

// Score scores as many of the index's tokens as dst has room for, rounded as a drive's score block carries them. dim is the
// length of a key.
func (t *TokenScan) Score(x *Index, q *policy.TokenQuery, dim int, dst []float32, pool *kernels.Pool) {
	if t.run == nil {
		t.run = t.Chunk
	}
	pool.Run(t.Begin(x, q, dim, dst, pool.Threads()), t.run)
}

// Begin is Score in parts: Chunk is to be called once with each number below chunks, by any of so many threads.
func (t *TokenScan) Begin(x *Index, q *policy.TokenQuery, dim int, dst []float32, threads int) (chunks int) {
	for len(t.sums) < threads {
		t.sums = append(t.sums, make([]int32, 2*ChunkTokens))
	}
	t.of, t.dst, t.shift = x, dst, q.Shift
	t.layOut(q.Int8, dim)
	countScan(x, len(dst))
	return (len(dst) + ChunkTokens - 1) / ChunkTokens
}

// layOut lays the query out as the codes take it.
func (t *TokenScan) layOut(query []int8, dim int) {
	width := t.of.heads[0].codes.QueryDim()
	if need := len(t.of.heads) * width; cap(t.query) < need {
		t.query = make([]int8, need)
	}
	t.query = t.query[:len(t.of.heads)*width]
	clear(t.query)
	for g := range t.of.heads {
		copy(t.query[g*width:], query[g*dim:(g+1)*dim])
	}
}

// Chunk scores one chunk of tokens on a thread.
func (t *TokenScan) Chunk(worker, chunk int) {
	from := chunk * ChunkTokens
	dst := t.dst[from:min(from+ChunkTokens, len(t.dst))]
	sums, scratch := t.sums[worker][:len(dst)], t.sums[worker][ChunkTokens:]
	clear(sums)
	width := len(t.query) / len(t.of.heads)
	for g := range t.of.heads {
		codes := t.of.heads[g].codes
		if chunk >= codes.Chunks() {
			break // a token that is hot, and whose key is not there yet
		}
		codes.AddProducts(sums, scratch, t.query[g*width:(g+1)*width], chunk)
	}
	for i := range dst {
		dst[i] = float32(sums[i])
	}
	policy.RoundScores(dst, t.shift)
}
