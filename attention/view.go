package attention

import (
	"fmt"

	"terrace/internal/kvpage"
)

// Page is one page of a view.
type Page struct {
	Data []byte  // Layout.PageBytes() bytes: K payload, then V payload
	Pos  []int32 // position of each of the N tokens, ascending over the view
	N    int     // tokens in use: slots [0, N)
	// Version names the content: two pages of a cache with the same version, not 0, hold the same bytes in the slots that
	// both use. A backend may keep copies by it. 0 = unknown.
	Version uint64
}

// View is the keys and values of one layer and one KV head of a sequence. Tokens that were evicted simply are not in
// Pos. Recent holds the tokens after those of Pages in a second layout: KIVI's full-precision window behind quantised
// pages.
type View struct {
	Layout       kvpage.Layout
	Pages        []Page
	RecentLayout kvpage.Layout
	Recent       []Page
	Cache        uint64 // the sequence that the pages belong to, for backends that keep copies; 0 = unknown
}

// Tokens is the number of tokens of the view.
func (v *View) Tokens() int {
	n := 0
	for i := range v.Pages {
		n += v.Pages[i].N
	}
	for i := range v.Recent {
		n += v.Recent[i].N
	}
	return n
}

// Params are the numbers of a layer's attention.
type Params struct {
	Heads, KVHeads   int
	KeyDim, ValueDim int
	Scale            float32   // of q·k
	Softcap          float32   // scores become Softcap·tanh(score/Softcap); 0 = none
	Window           int       // key visible iff posQ - posK < Window; 0 = no window
	Chunk            int       // key visible iff posQ / Chunk = posK / Chunk; 0 = no chunks
	Sinks            []float32 // [Heads] scores of a sink without value that joins each softmax; nil = none
}

// Seq is the part of one sequence in an Attend: n queries over one view a KV head.
type Seq struct {
	Q     []float32 // [n, Heads·KeyDim]
	Pos   []int32   // [n]
	Views []View    // [KVHeads]
	Out   []float32 // [n, Heads·ValueDim]
	// Select, where not nil, restricts each KV head to the tokens with these view-order numbers, in rising order; a nil
	// entry is all of them. [KVHeads].
	Select     [][]int32
	Sparse     *Sparse     // a prefill mask; nil = dense. Not for the Decode phase, nor with ColumnSums or Select
	ColumnSums *ColumnSums // nil unless weights are wanted
	Norm       *Norm       // nil unless the outputs are to be merged with others; not with Sparse
	// Await, where not nil, is to be called before the bytes of the newest tokens are read from pages: they are still on their
	// way from the device that computed them. Only backends with a device are given it.
	Await func() error
}

func (p *Params) check(seqs []Seq) {
	if p.Heads <= 0 || p.KVHeads <= 0 || p.Heads%p.KVHeads != 0 || p.KeyDim <= 0 || p.ValueDim <= 0 {
		panic(fmt.Sprintf("attention: %d heads over %d KV heads of %d/%d", p.Heads, p.KVHeads, p.KeyDim, p.ValueDim))
	}
	for i := range seqs {
		s := &seqs[i]
		n := len(s.Pos)
		if len(s.Q) < n*p.Heads*p.KeyDim || len(s.Out) < n*p.Heads*p.ValueDim || len(s.Views) != p.KVHeads {
			panic(fmt.Sprintf("attention: sequence %d of %d rows: Q %d, Out %d, %d views; want heads %d/%d of %d/%d",
				i, n, len(s.Q), len(s.Out), len(s.Views), p.Heads, p.KVHeads, p.KeyDim, p.ValueDim))
		}
		for j := range s.Views {
			v := &s.Views[j]
			p.checkLayout(v.Layout, len(v.Pages))
			p.checkLayout(v.RecentLayout, len(v.Recent))
		}
	}
}

func (p *Params) checkLayout(l kvpage.Layout, pages int) {
	if pages > 0 && (l.KeyDim != p.KeyDim || l.ValueDim != p.ValueDim) {
		panic(fmt.Sprintf("attention: view of %v, want dimensions %d/%d", l, p.KeyDim, p.ValueDim))
	}
}
