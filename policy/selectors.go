package policy

import (
	"math"

	"terrace/internal/kernels"
)

// chooser is embedded by selectors: a budget, layers that read everything, tokens that are read in any case, and the
// combination of a group's scores into one ranking.
type chooser struct {
	base
	budget Budget
	dense  int // first layers that read everything
	sinks  int
	recent int
	group  groupRule

	scores []float32 // [group][tokens or blocks]
	picked []int32
	pick   picker
}

// groupRule says how the scores of the query heads that share a KV head become one.
type groupRule int

const (
	groupSoftmax groupRule = iota // sum of the heads' softmax weights
	groupSum                      // sum of the raw scores
	groupMax                      // largest raw score
)

// chooserParams are the parameters of [chooser].
func chooserParams(budget, dense, sinks, recent, group string) []Param {
	return append(budgetParams(budget),
		Param{Name: "dense_layers", Aliases: []string{"skip_layers"}, Default: dense, Doc: "first layers that read everything"},
		Param{Name: "n_sink", Aliases: []string{"sinks"}, Default: sinks, Doc: "first tokens that are always read"},
		Param{Name: "recent", Default: recent, Doc: "newest tokens that are always read"},
		Param{Name: "group", Default: group, Doc: "one ranking for the query heads of a KV head: softmax (sum of weights), sum or max (of raw scores)"})
}

// sketchParam says where a selector's copy of the keys lies; on the tier it is what papers with external storage assume.
var sketchParam = Param{Name: "sketch", Default: "memory", Doc: "where what is scanned of the keys lies: memory, or storage: on the tier below host memory, streamed from there two layers ahead"}

// stored reads sketchParam.
func (a *args) stored() bool { return a.choice("sketch", "memory", "storage") == 1 }

func newChooser(a *args) chooser {
	return chooser{
		base: a.base(), budget: a.budget(),
		dense: a.int("dense_layers", 0, maxTokens), sinks: a.int("n_sink", 0, maxTokens), recent: a.int("recent", 0, maxTokens),
		group: groupRule(a.choice("group", "softmax", "sum", "max")),
	}
}

// start resets the picks; false means that everything is read.
func (c *chooser) start(l *Layer, read *Selection) (target int, ok bool) {
	read.Reset(l.KVHeads)
	target = c.budget.Of(l, l.N)
	if c.readsAll(l) {
		read.All = true
		return 0, false
	}
	return target, true
}

// readsAll reports whether nothing is left out of a layer.
func (c *chooser) readsAll(l *Layer) bool { return l.Index < c.dense || fits(l, c.budget.Of(l, l.N)) }

// Most implements [Reader].
func (c *chooser) Most(l *Layer) (tokens, run int) { return c.mostOfBlocks(l, 1, 0), 1 }

// mostOfBlocks is how many tokens blocks hold that are ranked within the budget, or so many of them in any case.
func (c *chooser) mostOfBlocks(l *Layer, size, least int) int {
	if l.Index < c.dense {
		return l.N
	}
	return min(max(c.budget.Of(l, l.N)/size, least)*size, l.N)
}

// queries is the newest query of the heads of one group, [group, KeyDim], contiguous.
func (l *Layer) queries(kvHead int) []float32 {
	at := (l.Rows-1)*l.Heads*l.KeyDim + kvHead*l.Group()*l.KeyDim
	return l.Queries[at : at+l.Group()*l.KeyDim]
}

// scale is what raw products are multiplied by before a softmax.
func (l *Layer) scale() float32 {
	if l.Scale != 0 {
		return l.Scale
	}
	return float32(1 / math.Sqrt(float64(l.KeyDim)))
}

// Lender is a [Scorer] whose approximate scores need not be copied.
type Lender interface {
	// Lend is Approx, in rows stride numbers apart that are the caller's to change until it asks again; nil where nothing is lent.
	Lend(kvHead int, q []float32, rows int) (scores []float32, stride int)
}

// approx are the scores of the newest queries of one group with what is scanned of n tokens' keys, in rows stride numbers apart.
func (c *chooser) approx(l *Layer, g, n int) (scores []float32, stride int) {
	if lender, ok := l.Scores.(Lender); ok {
		if scores, stride := lender.Lend(g, l.queries(g), l.Group()); scores != nil {
			return scores, stride
		}
	}
	c.scores = sized(c.scores, l.Group()*n)
	l.Scores.Approx(g, l.queries(g), l.Group(), c.scores)
	return c.scores, n
}

// merge makes one score a token (or block) of c.scores [group][n] of a KV head by the group rule.
func (c *chooser) merge(l *Layer, kvHead, n int) []float32 {
	return c.mergeRows(l, kvHead, c.scores, n, n)
}

// mergeRows is merge of rows stride numbers apart. It changes them: the first becomes the result.
func (c *chooser) mergeRows(l *Layer, kvHead int, scores []float32, stride, n int) []float32 {
	merged, group, first := scores[:n], l.Group(), kvHead*l.Group()
	if group == 1 {
		return merged
	}
	if c.group == groupSoftmax {
		l.weigh(merged, l.scale(), first)
	}
	for h := 1; h < group; h++ {
		row := scores[h*stride:][:n]
		switch c.group {
		case groupMax:
			for i, s := range row {
				merged[i] = max(merged[i], s)
			}
			continue
		case groupSoftmax:
			l.weigh(row, l.scale(), first+h)
		}
		kernels.Add(merged, row)
	}
	return merged
}

// choose appends the best target of scores with sinks and recents (at least the newest) forced in.
func (c *chooser) choose(dst []int32, scores []float32, target int) []int32 {
	return c.forced(dst, scores, target, c.sinks, max(c.recent, 1))
}

// forced appends the best target of scores, the first sinks and the last recent among them as far as they fit; recents go
// before sinks.
func (c *chooser) forced(dst []int32, scores []float32, target, sinks, recent int) []int32 {
	n := len(scores)
	recent = min(recent, target, n)
	sinks = min(sinks, target-recent, n-recent)
	dst = span(dst, 0, sinks)
	dst = c.pick.best(dst, scores[sinks:n-recent], target-sinks-recent, int32(sinks))
	return span(dst, n-recent, n)
}
