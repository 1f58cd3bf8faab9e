package policy

import (
	"strconv"

	"terrace/internal/units"
)

// sparF is InstInfer's SparF attention (arXiv 2409.04992, Algorithm 1; algorithms.md 2.2): SparQ whose reads are flash pages. A
// page of the keys' second copy holds a few dimensions of many tokens, a page of the first copy, or of the values, a few tokens; a
// page is read if one of its members is chosen, and a filter behind it drops the others. So SparF's output is SparQ's at equal
// r, k and l, and the groups of m dimensions and n tokens change what is read, never what comes out.
//
// On the host pages do not exist: it reads as sparq does. Where KV lies on drives that attend ([DriveAttention]), they do the
// whole of it.
//
// The paper states only the compression ratio ρ, bytes read over dense bytes; here r = ρ·d, k = ρ·S/2 and l = k/4, each rounded
// down and at least 1; S counts the newest token, and l is part of k.
type sparF struct {
	sparQ
	full bool // mode=dense: everything is read
	m, n int  // dimensions and tokens of a page's group; 0 = chosen by what is expected
}

func init() {
	register(Info{
		Name:    "sparf",
		Summary: "sparq in pages, as a drive computes it: reads the query's largest dimensions, then the best tokens",
		Paper:   "InstInfer: In-Storage Attention Offloading for Cost-Effective Long-Context LLM Inference, arXiv 2409.04992",
		Phase:   PhaseRead,
		Systems: []System{{Name: "insti_dense", Params: "mode=dense", Doc: "InstI-Dense, on tier csd: the drive attends to everything"}},
		Params: []Param{
			{Name: "ratio", Aliases: []string{"keep"}, Default: "12.5%", Doc: "bytes read over all bytes (the paper's compression ratio): r, k and l follow from it"},
			{Name: "r", Aliases: []string{"rank"}, Doc: "dimensions of the key that are read: a number or a share; ratio of them unless given"},
			{Name: "k", Aliases: []string{"budget"}, Doc: "tokens that are read whole: a number or a share of the context; half of ratio unless given"},
			{Name: "l", Aliases: []string{"local"}, Doc: "newest tokens among them in any case: a number or a share of k; a quarter unless given"},
			{Name: "m", Default: "0", Doc: "neighbouring dimensions of a flash page: 2, 4 or 8; 0: by the prompt's length"},
			{Name: "n", Default: "0", Doc: "neighbouring tokens of a flash page of keys, and of one of values; 0: as many as a page holds. Without m and n a page holds keys and values of half as many"},
			{Name: "mode", Default: "sparse", Doc: "sparse, or dense: everything is read (InstI-Dense)"},
		},
	}, func(a *args) Policy {
		p := &sparF{m: a.int("m", 0, 8), n: a.int("n", 0, maxTokens), full: a.choice("mode", "sparse", "dense") == 1}
		if p.m == 1 || p.m > 2 && p.m != 4 && p.m != 8 {
			a.fail("m", "2, 4 or 8", nil)
		}
		ratio := a.share("ratio")
		if ratio.share.Fraction == 0 && len(a.errs) == 0 {
			a.fail("ratio", "a fraction below 1 or a percentage", nil)
		}
		half := ratio
		half.share.Fraction /= 2
		p.sparQ = sparQ{base: a.base(), mean: !p.full, rank: a.countOr("r", ratio), budget: a.countOr("k", half),
			local: a.countOr("l", Budget{kind: budgetShare, share: units.Share{Fraction: 0.25}, text: "25%"})}
		return p
	})
}

// countOr reads a number from 1 on or a share; byDefault where the parameter was not given.
func (a *args) countOr(name string, byDefault Budget) Budget {
	switch text := a.raw(name); text {
	case "":
		return byDefault
	case "1": // no share here: shares have a point or a percent sign
		return tokensBudget(1)
	default:
		return a.share(name)
	}
}

func (p *sparF) Needs() Needs {
	if p.full {
		return Needs{}
	}
	return p.sparQ.Needs()
}

// Select reads as SparQ does, or everything.
func (p *sparF) Select(l *Layer, read *Selection) {
	if p.full {
		read.Reset(l.KVHeads)
		read.All = true
		return
	}
	p.sparQ.Select(l, read)
}

// Groups implements DriveAttention.
func (p *sparF) Groups() (dims, tokens int) { return p.m, p.n }

// Attention implements DriveAttention.
func (p *sparF) Attention(keyDim, n int) SparF {
	if p.full {
		return SparF{}
	}
	k := p.budget.Tokens(n, 0)
	if k >= n {
		return SparF{}
	}
	return SparF{Dims: p.rank.Tokens(keyDim, 1), Tokens: k, Local: p.local.Tokens(k, 0)}
}

// DriveAttention is a Selector whose attention a drive computes where the keys and values lie, with the outcome that Select has
// on the host.
type DriveAttention interface {
	Selector
	// Groups are the neighbouring dimensions and tokens of a flash page; 0 = by what is expected.
	Groups() (dims, tokens int)
	// Attention is what a step of n tokens, the newest included, does in a layer.
	Attention(keyDim, n int) SparF
}

// SparF is one step's attention in a layer; the zero value reads everything.
type SparF struct {
	Dims   int // dimensions of the key that are read first (the paper's r); 0 = dense
	Tokens int // tokens that are then read whole (k)
	Local  int // newest tokens among them in any case (l)
}

// Selector is a fresh instance that selects so on whoever holds the keys.
func (s SparF) Selector() Selector {
	if s.Dims == 0 {
		return &sparF{full: true}
	}
	p := &sparF{sparQ: sparQ{base: base{name: "sparf"}, mean: true, rank: tokensBudget(s.Dims), budget: tokensBudget(s.Tokens), local: tokensBudget(s.Local)}}
	p.text = "sparf:r=" + strconv.Itoa(s.Dims) + ",k=" + strconv.Itoa(s.Tokens) + ",l=" + strconv.Itoa(s.Local)
	return p
}
