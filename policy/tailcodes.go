package policy

import (
	"fmt"
	"math"
	"slices"

	"terrace/internal/kernels"
)

// tailcodes reads the best tokens exactly and lets product codes stand for all others (ours). Keys and values are both coded: each
// vector is cut into parts, and of each part the number of the nearest of 2^bits centroids is kept, which k-means found after the
// prompt among some of its tokens (train). The numbers of a key are shared out to its parts so that the products of their variances
// are about equal (order=balanced): a number that varies much stands beside one that hardly does, and has the centroids to itself.
// Keys of the first n_sink tokens, which codes render badly, are kept as they are.
//
// A step, per KV head with its group of query heads: ẑ_h(t) = scale·q_h·k̂_t for every cached token t (k̂ the coded key), weights
// w_h = softmax of ẑ_h over all tokens, S(t) = Σ_h w_h(t). Sinks and the newest tokens are read; the rest of the budget goes to the
// tokens with the largest S, of each KV head (share=head) or of all of the layer together (share=layer: heads whose attention is
// narrow leave tokens to the others). The tokens T that are not read are not left out: attention is
//
//	(Σ_read e^z·v + Σ_T e^ẑ·v̂) / (Σ_read e^z + Σ_T e^ẑ), v̂ the coded value
//
// (tail=codes), or they are ignored (tail=none).
//
// A step scans KeyDim/part·bits/8 bytes of a token's key and ValueDim/value_part·bits/8 of its value, and 4·(KeyDim+ValueDim)·2^bits
// bytes of centroids: with the defaults 20 of the 256 bytes that a token of 64 and 64 numbers takes in half precision. A prompt with no more
// tokens than centroids has no codes, and all of that text is read.
type tailCodes struct {
	base
	budget    Budget
	sinks     int
	recent    int
	part      int // numbers of a key, and
	valuePart int // of a value, that a code stands for
	bits      int
	iters     int
	sample    int
	dense     int
	keyDim    int
	width     int // of a value
	layer     bool
	tail      bool
	balanced  bool

	heads []tailHead
	sums  []float32 // [KVHeads][candidates]
	best  []int32
	pick  picker
}

// tailHead is one KV head's scratch.
type tailHead struct {
	scores []float32 // [group][tokens]: weights
	log    []float32 // [group]: logarithm of what they were divided by
	left   []float32 // [group]: weight of what is not read
	out    []float32 // [group, ValueDim]
}

func init() {
	register(Info{
		Name:    "tailcodes",
		Summary: "scans 4-bit product codes, reads the best tokens, attends to others through codes of keys and values",
		Phase:   PhaseRead,
		Params: append(budgetParams("10%"),
			Param{Name: "n_sink", Aliases: []string{"sinks"}, Default: "4", Doc: "first tokens that are always read, have no part in the centroids, and whose keys are kept as they are"},
			Param{Name: "recent", Default: "16", Doc: "newest tokens that are always read"},
			Param{Name: "part", Default: "2", Doc: "numbers of a key that one code stands for, a divisor of its length"},
			Param{Name: "value_part", Default: "8", Doc: "numbers of a value that one code stands for, a divisor of its length"},
			Param{Name: "bits", Default: "4", Doc: "of a code, 1 to 8: 2^bits centroids a part"},
			Param{Name: "iters", Default: "10", Doc: "rounds of k-means"},
			Param{Name: "train", Default: "1k", Doc: "tokens of a longer prompt, evenly spread, that k-means sees; 0: all"},
			Param{Name: "share", Default: "head", Doc: "whose budget is one: a head, or the layer (tokens go to the heads that attend to more)"},
			Param{Name: "tail", Default: "codes", Doc: "what stands for tokens that are not read: codes, or none"},
			Param{Name: "order", Default: "balanced", Doc: "which numbers of a key share a code: balanced (those that vary much with those that vary little), or neighbours"},
			Param{Name: "dense_layers", Aliases: []string{"skip_layers"}, Default: "0", Doc: "first layers that read everything"}),
	}, func(a *args) Policy {
		return &tailCodes{base: a.base(), budget: a.budget(), sinks: a.int("n_sink", 0, maxTokens), recent: a.int("recent", 1, maxTokens),
			part: a.int("part", 1, 4096), valuePart: a.int("value_part", 1, 4096), bits: a.int("bits", 1, 8), iters: a.int("iters", 0, 1000), sample: a.int("train", 0, maxTokens),
			layer: a.choice("share", "head", "layer") == 1, tail: a.choice("tail", "codes", "none") == 0, balanced: a.choice("order", "balanced", "neighbours") == 0, dense: a.int("dense_layers", 0, maxTokens)}
	})
}

// Bind refuses parts that do not divide a key or a value.
func (p *tailCodes) Bind(m Model) error {
	kv, err := m.one(p.Name())
	if err != nil {
		return err
	}
	if kv.KeyDim%p.part != 0 {
		return fmt.Errorf("policy: tailcodes: part=%d: want a divisor of the model's %d numbers a key: %w", p.part, kv.KeyDim, ErrModel)
	}
	if p.tail && (kv.ValueDim < 1 || kv.ValueDim%p.valuePart != 0) {
		return fmt.Errorf("policy: tailcodes: value_part=%d: want a divisor of the model's %d numbers a value: %w", p.valuePart, kv.ValueDim, ErrModel)
	}
	p.keyDim, p.width = kv.KeyDim, kv.ValueDim
	return nil
}

func (p *tailCodes) Needs() Needs {
	s := Sketch{Kind: SketchProduct, Parts: max(p.keyDim/p.part, 1), Bits: p.bits, Iters: p.iters, Sample: p.sample, Balanced: p.balanced, Sinks: p.sinks, First: p.sinks}
	if p.tail {
		s.ValueParts, s.ValueDim = max(p.width/p.valuePart, 1), p.width
	}
	return Needs{TokenGranularity: true, Estimates: p.tail, Sketch: s}
}

func (p *tailCodes) denseLayers() int { return p.dense }

// readsAll reports whether nothing of a layer is left to codes.
func (p *tailCodes) readsAll(l *Layer) bool {
	return l.Index < p.dense || p.budget.Of(l, l.N) >= l.N || l.N <= p.sinks+p.recent
}

// Most implements [Reader]: of a shared budget one head may take everything.
func (p *tailCodes) Most(l *Layer) (tokens, run int) {
	if p.readsAll(l) || l.Prompt-p.sinks <= 1<<p.bits || p.layer {
		return l.N, 1
	}
	return min(max(p.budget.Of(l, l.N), p.sinks+p.recent), l.N), 1
}

// Select ranks the tokens of all heads, then weighs what is not read.
func (p *tailCodes) Select(l *Layer, read *Selection) {
	read.Reset(l.KVHeads)
	if p.readsAll(l) || !l.Scores.Trained(0) {
		read.All = true
		return
	}
	for len(p.heads) < l.KVHeads {
		p.heads = append(p.heads, tailHead{})
	}
	from := make([]int, l.KVHeads+1) // where a head's candidates begin in sums
	for g := range l.KVHeads {
		from[g+1] = from[g] + max(l.Tokens(g)-p.sinks-p.recent, 0)
	}
	p.sums = sized(p.sums, from[l.KVHeads])
	l.each(l.KVHeads, func(_, g int) { p.heads[g].weigh(l, g, p.sinks, p.sums[from[g]:from[g+1]]) })
	each := max(p.budget.Of(l, l.N)-p.sinks-p.recent, 0)
	p.best = p.best[:0]
	if p.layer {
		p.best = p.pick.best(p.best, p.sums, min(each*l.KVHeads, len(p.sums)), 0)
	} else {
		for g := range l.KVHeads {
			p.best = p.pick.best(p.best, p.sums[from[g]:from[g+1]], min(each, from[g+1]-from[g]), int32(from[g]))
		}
	}
	for g := range l.KVHeads {
		n := l.Tokens(g)
		picks := span(read.Heads[g], 0, min(p.sinks, n))
		lo, _ := slices.BinarySearch(p.best, int32(from[g]))
		hi, _ := slices.BinarySearch(p.best, int32(from[g+1]))
		for _, i := range p.best[lo:hi] {
			picks = append(picks, i-int32(from[g])+int32(p.sinks))
		}
		read.Heads[g] = span(picks, max(n-p.recent, min(p.sinks, n)), n)
	}
	if !p.tail {
		return
	}
	l.each(l.KVHeads, func(_, g int) { p.heads[g].rest(l, g, read.Heads[g]) })
	for g := range l.KVHeads {
		h := &p.heads[g]
		read.Estimates.LogSum = append(read.Estimates.LogSum, h.left...)
		read.Estimates.Values = append(read.Estimates.Values, h.out...)
	}
}

// weigh fills scores with weights over all tokens, and sums with those of the candidates over the group.
func (h *tailHead) weigh(l *Layer, g, sinks int, sums []float32) {
	n, group, scale := l.Tokens(g), l.Group(), l.scale()
	h.scores, h.log = sized(h.scores, group*n), sized(h.log, group)
	l.Scores.Approx(g, l.queries(g), group, h.scores)
	clear(sums)
	for r := range group {
		row := h.scores[r*n : (r+1)*n]
		kernels.Scale(row, scale)
		top := slices.Max(row)
		var total float64
		for i, z := range row {
			row[i] = float32(math.Exp(float64(z - top)))
			total += float64(row[i])
		}
		kernels.Scale(row, float32(1/total))
		h.log[r] = top + float32(math.Log(total))
		if len(sums) > 0 {
			kernels.Add(sums, row[sinks:sinks+len(sums)])
		}
	}
}

// rest fills left with the logarithms of Σ e^ẑ over the tokens that are not read, and out with their mean value.
func (h *tailHead) rest(l *Layer, g int, read []int32) {
	n, group, dim := l.Tokens(g), l.Group(), l.ValueDim
	h.left, h.out = sized(h.left, group), sized(h.out, group*dim)
	for r := range group {
		row := h.scores[r*n : (r+1)*n]
		for _, i := range read {
			row[i] = 0
		}
	}
	l.Scores.Tail(g, h.scores, group, h.out)
	for r := range group {
		var total float64
		for _, w := range h.scores[r*n : (r+1)*n] {
			total += float64(w)
		}
		if total == 0 {
			h.left[r] = -infinity
			clear(h.out[r*dim : (r+1)*dim])
			continue
		}
		h.left[r] = h.log[r] + float32(math.Log(total))
		kernels.Scale(h.out[r*dim:(r+1)*dim], float32(1/total))
	}
}
