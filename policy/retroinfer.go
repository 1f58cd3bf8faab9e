package policy

import (
	"fmt"
	"math"

	"terrace/internal/kernels"
)

// retroinfer groups keys by direction and reads the tokens of the best clusters; the next best are only estimated, by their mean
// key and the sum of their values, and the rest is ignored (Chen et al. 2025, arXiv 2505.02922). The first and the newest
// tokens are always read. Clusters are ranked, per KV head, by the sum over the group of softmax(q·centroid).
//
// A step scans a key a cluster, in float32, and the list of which token is in which cluster. The estimate costs a value sum
// each, and no token.
type retroinfer struct {
	base
	sketch     ClusterSketch
	retrieval  float64
	estimation float64
	buffer     int // clusters that stay in fast memory; -1 = as many as fit
	dense      int

	scores, sum, row []float32
	best, next       []int32
	read             []bool
	value            []float64
	pick             picker
}

func init() {
	register(Info{
		Name:    "retroinfer",
		Summary: "reads the best clusters of keys, estimates the next best by centroids and value sums",
		Paper:   "RetroInfer: A Vector-Storage Approach for Scalable Long-Context LLM Inference, arXiv 2505.02922",
		Phase:   PhaseRead,
		Params: []Param{
			{Name: "retrieval", Default: "1.8%", Doc: "share of the clusters whose tokens are read"},
			{Name: "estimation", Default: "23.2%", Doc: "share of the clusters that are estimated"},
			{Name: "cluster", Default: "16", Doc: "tokens of a cluster, on average"},
			{Name: "segment", Default: "8192", Doc: "tokens of the prompt that are grouped together"},
			{Name: "iters", Default: "10", Doc: "rounds of k-means"},
			{Name: "n_sink", Aliases: []string{"sinks"}, Default: "4", Doc: "first tokens that are always read"},
			{Name: "recent", Default: "64", Doc: "newest tokens that are always read"},
			{Name: "update", Default: "1024", Doc: "generated tokens that are grouped together, 8 or more"},
			{Name: "buffer", Doc: "clusters of a KV head that stay in fast memory on tiers, as tokens of a cluster on average, those read last; not given: as many as fit (changes bytes, no result)"},
			{Name: "dense_layers", Aliases: []string{"skip_layers"}, Default: "0", Doc: "first layers that read everything"},
		},
	}, func(a *args) Policy {
		buffer := -1
		if a.has("buffer") {
			buffer = a.int("buffer", 0, maxTokens)
		}
		return &retroinfer{base: a.base(), buffer: buffer, retrieval: a.float("retrieval", 0, 1), estimation: a.float("estimation", 0, 1), dense: a.int("dense_layers", 0, maxTokens),
			sketch: ClusterSketch{Size: a.int("cluster", 1, 1<<20), Segment: a.int("segment", 1, maxTokens), Iters: a.int("iters", 1, 1000),
				Sinks: a.int("n_sink", 0, maxTokens), Recent: a.int("recent", 0, maxTokens), Update: a.int("update", 8, maxTokens)}}
	})
}

// Bind remembers the length of a value, which clusters hold too.
func (p *retroinfer) Bind(m Model) error {
	kv, err := m.one(p.Name())
	if p.sketch.ValueDim = kv.ValueDim; err == nil && kv.ValueDim < 1 {
		return fmt.Errorf("policy: retroinfer: values of %d numbers: %w", kv.ValueDim, ErrModel)
	}
	return err
}

func (p *retroinfer) Needs() Needs {
	return Needs{TokenGranularity: true, Estimates: true, Sketch: Sketch{Kind: SketchClusters, Clusters: p.sketch}}
}

// SelectsByHead implements HeadSelector.
func (p *retroinfer) SelectsByHead() {}

// BufferTokens implements [Buffered]: the clusters', and the steady tokens, which every step reads.
func (p *retroinfer) BufferTokens(*Layer) int {
	if p.buffer < 0 {
		return -1
	}
	return p.buffer*p.sketch.Size + p.sketch.Sinks + p.sketch.Recent + p.sketch.Update
}

func (p *retroinfer) denseLayers() int { return p.dense }

// Select ranks the clusters of each KV head.
func (p *retroinfer) Select(l *Layer, read *Selection) {
	read.Reset(l.KVHeads)
	if l.Index < p.dense || len(l.Scores.Clusters(0).Batches) == 0 {
		read.All = true
		return
	}
	for g := range read.Heads {
		c, group := l.Scores.Clusters(g), l.Group()
		p.rank(l, g, c)
		retrieved, estimated := p.zones(c)
		n := len(c.Sizes)
		p.best = p.pick.best(p.best[:0], p.sum[:n], min(retrieved, n), 0)
		p.next = p.pick.best(p.next[:0], p.sum[:n], min(retrieved+estimated, n), 0)
		read.Heads[g] = p.tokens(read.Heads[g], c, l.Tokens(g))
		read.Scanned += c.listBytes() + int64(4*n*(l.KeyDim+1)) + int64(4*(len(p.next)-len(p.best))*l.ValueDim)
		for h := range group {
			p.estimate(c, p.scores[h*n:(h+1)*n], l.ValueDim, read)
		}
	}
}

// Most implements [Reader]: the steady tokens, and clusters of four times their mean size, or an eighth of the text where that
// is more. K-means may make larger ones: a step that reads more takes the room of cached tokens.
func (p *retroinfer) Most(l *Layer) (tokens, run int) {
	steady := p.sketch.Sinks + p.sketch.Recent + p.sketch.Update + 1
	if l.Index < p.dense || l.Prompt < steady {
		return l.N, 1
	}
	clusters := float64(l.N) / float64(p.sketch.Size) * p.retrieval
	return min(steady+max(int(clusters+1)*4*p.sketch.Size, l.N/8), l.N), 1
}

// rank fills scores [group, clusters] with scaled products and sum with the ranking.
func (p *retroinfer) rank(l *Layer, g int, c *Clusters) {
	n, d, group, q := len(c.Sizes), l.KeyDim, l.Group(), l.queries(g)
	p.scores, p.sum = sized(p.scores, group*n), sized(p.sum, n)
	clear(p.sum)
	for h := range group {
		row := p.scores[h*n : (h+1)*n]
		for j := range row {
			row[j] = l.scale() * kernels.Dot(q[h*d:(h+1)*d], c.Keys[j*d:(j+1)*d])
		}
		p.row = weights(p.row, row, 1)
		kernels.Add(p.sum, p.row[:n])
	}
}

// zones are the numbers of clusters that are read and estimated: shares of each batch of clusters, empty ones counted.
func (p *retroinfer) zones(c *Clusters) (retrieved, estimated int) {
	for i := range c.Batches {
		n := c.Batches[i].Count
		r := min(max(int(math.RoundToEven(float64(n)*p.retrieval)), 1), n)
		retrieved += r
		estimated += min(int(math.RoundToEven(float64(n)*p.estimation)), n-r)
	}
	return retrieved, estimated
}

// tokens appends those of the best clusters, and the steady ones.
func (p *retroinfer) tokens(dst []int32, c *Clusters, n int) []int32 {
	p.read = sized(p.read, len(c.Sizes))
	clear(p.read)
	for _, j := range p.best {
		p.read[j] = true
	}
	dst = span(dst, 0, min(c.From, n))
	at := c.From
	for i := range c.Batches {
		b := &c.Batches[i]
		for k := range b.Tokens() {
			if p.read[b.Cluster(k)] {
				dst = append(dst, int32(at))
			}
			at++
		}
	}
	return span(dst, max(c.Done, min(c.From, n)), n)
}

// estimate adds what the clusters of next that are not in best stand for in one query head.
func (p *retroinfer) estimate(c *Clusters, scores []float32, valueDim int, read *Selection) {
	top, at := math.Inf(-1), 0
	each := func(do func(j int32)) {
		at = 0
		for _, j := range p.next {
			if at < len(p.best) && p.best[at] == j {
				at++
				continue
			}
			do(j)
		}
	}
	each(func(j int32) { top = max(top, float64(scores[j])) })
	p.value = sized(p.value, valueDim)
	clear(p.value)
	var total float64
	each(func(j int32) {
		e := math.Exp(float64(scores[j]) - top)
		total += e * float64(c.Sizes[j])
		for d, x := range c.Values[int(j)*valueDim : int(j+1)*valueDim] {
			p.value[d] += e * float64(x)
		}
	})
	e := &read.Estimates
	if total == 0 {
		e.LogSum, e.Values = append(e.LogSum, -infinity), append(e.Values, make([]float32, valueDim)...)
		return
	}
	e.LogSum = append(e.LogSum, float32(top+math.Log(total)))
	for _, x := range p.value {
		e.Values = append(e.Values, float32(x/total))
	}
}

// Estimates stand for tokens that are not read, by query head: LogSum is the logarithm of the sum of e^score that they would
// add, Values [Heads, ValueDim] is their weighted mean value. The engine mixes them with the attention to what is read.
type Estimates struct{ LogSum, Values []float32 }

// ClusterSketch says how keys are grouped for a [SketchClusters].
type ClusterSketch struct {
	Size          int // tokens of a cluster, on average
	Segment       int // tokens of the prompt that are grouped together
	Iters         int // rounds of k-means
	Sinks, Recent int // first and newest tokens that are in no cluster
	Update        int // generated tokens that are grouped together
	ValueDim      int
}

// Clusters are one KV head's groups of tokens, older first; those without tokens are left out. It is read only.
type Clusters struct {
	Keys    []float32 // [clusters, KeyDim] mean key
	Values  []float32 // [clusters, ValueDim] sum of values
	Sizes   []int32   // [clusters] tokens
	From    int       // index in the cache of the first token that is grouped,
	Done    int       // and behind the last
	Batches []ClusterBatch
}

// ClusterBatch is what was grouped at a time.
type ClusterBatch struct {
	First int    // its first cluster
	Count int    // clusters that were made, those without tokens counted
	Width int    // bytes of a number in Of: 1, 2 or 4
	Of    []byte // little endian, by token: its cluster, counted from First
}

// listBytes is the size of the lists that say which cluster tokens are in.
func (c *Clusters) listBytes() (n int64) {
	for i := range c.Batches {
		n += int64(len(c.Batches[i].Of))
	}
	return n
}

// Tokens is the number of tokens of the batch.
func (b *ClusterBatch) Tokens() int { return len(b.Of) / b.Width }

// Cluster is that of the batch's token i.
func (b *ClusterBatch) Cluster(i int) (j int) {
	for k := b.Width - 1; k >= 0; k-- {
		j = j<<8 | int(b.Of[i*b.Width+k])
	}
	return b.First + j
}
