package attention

import (
	"sync"
	"sync/atomic"

	"terrace/internal/kernels"
)

// workspace is the scratch of one Attend call; it grows to the largest call and is reused. The ways to attend
// (decode, prompt, sparse, rows that share keys) are files; they share its buffers, so that a step allocates nothing.
type workspace struct {
	phase   kernels.Phase
	p       Params
	seqs    []Seq
	workers []worker

	compacted                                                            compacted
	decode                                                               []decodeTask
	groups                                                               []decodeGroup
	order                                                                []int32 // tasks of decode as they are run
	units                                                                []int32 // where in order the units begin that are run as one, and its end
	claim, threads                                                       int     // how many of them a worker takes at once
	partials                                                             []float32
	used                                                                 int       // numbers of partials in use
	weights                                                              []float32 // kept for ColumnSums
	prefill                                                              []prefillTask
	subRows, padRows                                                     int // rows of a product, and what it may run over them by
	exact, bf16                                                          bool
	mass                                                                 []massTask
	bases                                                                []int32
	baseOf                                                               []int // start of (seq, KV head) in bases
	sparse                                                               []sparseTask
	sparseHeads                                                          []sparseHead
	massPlans                                                            []massPlan
	stripSums                                                            []float32
	stripSeen                                                            []bool
	runDecode, runDecodeMass, runPrefill, runMass, runPrepare, runSparse func(worker, i int)
}

// worker is the scratch of one thread.
type worker struct {
	list   list
	near   int             // the unit of decode whose keys have been asked for
	next   [][]byte        // tiles of keys
	listed listed          // what decode's list holds; seq -1 = nothing to be used again
	packed [packedRows]int // the first head whose queries are in a part of q: [row, KV head] times the group's size, plus the head in the group
	rows   rows
	pick   pick
	slots  []slot // tiles of a mask
	mask   sparseMask
	walk   blockWalk
	pos    [blockTokens]int32
	row    [blockTokens]float32 // weights of one row, or sums of a block
	bytes  []byte               // one tile expanded from a quantised type, or with dead slots cleared

	q, s, out      []float32 // packed queries, scores, unnormalised outputs
	m, l, corr     []float32 // of the online softmax, a row
	factors        []float64 // of the tasks of a merge
	kept           keptWeights
	key, value     []float32 // panels
	q16, p16       []uint16
	key16, value16 []uint16
	_              [64]byte
}

var workspaces = sync.Pool{New: func() any {
	w := &workspace{}
	w.runDecode, w.runDecodeMass = w.decodeUnit, w.decodeMass
	w.runPrefill, w.runMass = w.prefillBlock, w.massBlock
	w.runPrepare, w.runSparse = w.prepareSparse, w.sparseBlock
	return w
}}

// Attend writes softmax(scale·q·K)·V of every row of every sequence to Out. In the Decode phase each row walks the
// pages once, split over KV heads and ranges of tokens; in the other phases rows are taken in blocks. The Exact phase
// computes in float32 with exponentials within 2 ulp; Prefill may round q, K, V and the weights to bf16. A row that
// sees no key gets zeros. It allocates nothing in steady state. Wrong shapes panic.
func Attend(pool *kernels.Pool, ph kernels.Phase, p Params, seqs []Seq) {
	p.check(seqs)
	for i := range seqs {
		if ph == kernels.Decode && seqs[i].Sparse != nil {
			panic("attention: a prefill mask in the Decode phase")
		}
	}
	w := workspaces.Get().(*workspace)
	w.phase, w.p, w.seqs = ph, p, seqs
	for len(w.workers) < pool.Threads() {
		w.workers = append(w.workers, worker{})
	}
	if ph != kernels.Decode {
		w.compactChosen()
	}
	w.countTokens()
	if ph == kernels.Decode {
		w.attendDecode(pool)
	} else {
		w.attendBlocked(pool)
	}
	w.seqs, w.p.Sinks = nil, nil
	w.compacted.forget()
	clear(w.sparseHeads)
	for i := range w.workers {
		w.workers[i].forget()
	}
	workspaces.Put(w)
}

// forget drops the references to pages, so that scratch never keeps them alive.
func (k *worker) forget() {
	clear(k.list.keys[:cap(k.list.keys)])
	clear(k.list.values[:cap(k.list.values)])
	clear(k.next[:cap(k.next)])
	clear(k.rows.soon[:cap(k.rows.soon)])
	clear(k.rows.tail.keys[:cap(k.rows.tail.keys)])
	clear(k.rows.tail.values[:cap(k.rows.tail.values)])
	clear(k.slots[:cap(k.slots)])
	clear(k.pick.rows[:cap(k.pick.rows)])
	clear(k.pick.valueRows[:cap(k.pick.valueRows)])
	clear(k.pick.tile[:cap(k.pick.tile)])
	k.walk = blockWalk{}
}

// countTokens notes the view-order numbers of pages for the sequences that need them.
func (w *workspace) countTokens() {
	w.bases, w.baseOf = w.bases[:0], w.baseOf[:0]
	for i := range w.seqs {
		s := &w.seqs[i]
		for g := range s.Views {
			w.baseOf = append(w.baseOf, len(w.bases))
			if s.ColumnSums != nil || s.Select != nil {
				w.bases = s.Views[g].bases(w.bases)
			}
		}
	}
}

func (w *workspace) basesOf(seq, g int) []int32 { return w.bases[w.baseOf[seq*w.p.KVHeads+g]:] }

func (w *workspace) group() int { return w.p.Heads / w.p.KVHeads }

// grow returns b with room for n numbers; contents are undefined.
func grow[T any](b []T, n int) []T {
	if cap(b) < n {
		return make([]T, n, n+n/4)
	}
	return b[:n]
}

// countdown is decremented by workers; the one that reaches zero goes on.
type countdown struct{ n atomic.Int32 }

func (c *countdown) last() bool { return c.n.Add(-1) == 0 }
