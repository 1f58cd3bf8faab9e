package keyindex

import (
	"math"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/policy"
)

// Clusters groups one layer and KV head's keys by direction (RetroInfer): of each cluster the mean of its keys, the sum of its
// values and the tokens. The prompt is grouped once, between its first and its newest tokens, in segments; generated text
// `Update` tokens at a time, which are read from the cache then.
type Clusters struct {
	need   policy.ClusterSketch
	dim    int
	view   policy.Clusters
	begun  bool
	reader attention.Reader
	dots   []float32
	panel  []float32
}

// clusterTokens are keys [n, dim] and values [n, ValueDim].
type clusterTokens struct{ keys, values []float32 }

// refresh takes the tokens of a view up to n in; it reads those from reads(n) on.
func (c *Clusters) refresh(v *attention.View, n int) {
	if !c.begun {
		c.begun, c.view.From, c.view.Done = true, c.need.Sinks, c.need.Sinks
		if n >= c.need.Sinks+c.need.Recent+c.need.Update {
			c.prompt(v, n)
		}
	}
	for c.due(n) {
		c.generated(v)
	}
}

// due reports whether enough of the first n tokens wait to be grouped.
func (c *Clusters) due(n int) bool { return n-1-c.need.Recent-c.view.Done >= c.need.Update }

// reads is the first token that refresh would read of n, of a view that fits what was grouped or, where again is set, from the
// beginning; n = it reads none.
func (c *Clusters) reads(n int, again bool) int {
	switch {
	case (again || !c.begun) && n >= c.need.Sinks+c.need.Recent+c.need.Update:
		return c.need.Sinks
	case !again && c.begun && c.due(n):
		return c.view.Done
	}
	return n
}

// read reads keys and values of some tokens.
func (c *Clusters) read(v *attention.View, from, to int) (t clusterTokens) {
	if to <= from {
		return t
	}
	width := v.Layout.ValueDim
	t = clusterTokens{make([]float32, (to-from)*c.dim), make([]float32, (to-from)*width)}
	c.reader.Keys(v, from, to, t.keys)
	c.reader.Values(v, from, to, t.values)
	return t
}

// prompt groups the tokens between the first and the newest.
func (c *Clusters) prompt(v *attention.View, n int) {
	first, last := c.need.Sinks, n-c.need.Recent
	tokens := last - first
	segments := max(1, round(float64(n)/float64(c.need.Segment)))
	step := 8 / divisor(8, segments) * segments
	near := max(round(float64(n)/float64(c.need.Size)), step)
	count := near / step * step
	if near-count > count+step-near {
		count += step
	}
	if count = min(count, tokens/step*step); count == 0 {
		return
	}
	c.group(c.read(v, first, last), v.Layout.ValueDim, tokens, segments, count)
}

// generated groups the next tokens of the text.
func (c *Clusters) generated(v *attention.View) {
	n, done := c.need.Update, c.view.Done
	c.group(c.read(v, done, done+n), v.Layout.ValueDim, n, 1, min(max(round(float64(n)/float64(c.need.Size))/8*8, 8), n/8*8))
}

// group adds count clusters of the n tokens that follow those grouped before.
func (c *Clusters) group(t clusterTokens, width, n, segments, count int) {
	d := c.dim
	x := centred(t.keys, n, d)
	centroids := make([]float32, count*d)
	for j := range count {
		copy(centroids[j*d:(j+1)*d], x[(2*j+1)*n/(2*count)*d:][:d])
	}
	nearest := make([]int32, n)
	for range c.need.Iters - 1 {
		for s := range segments {
			lo, hi := s*(n/segments), (s+1)*(n/segments)
			first, last := s*count/segments, (s+1)*count/segments
			c.assign(x[lo*d:hi*d], centroids[first*d:last*d], nearest[lo:hi])
			directions(x[lo*d:hi*d], nearest[lo:hi], centroids[first*d:last*d], d)
		}
	}
	c.assign(x, centroids, nearest)
	c.add(t, width, nearest, count)
}

// add puts the clusters that have tokens into the view.
func (c *Clusters) add(t clusterTokens, width int, nearest []int32, count int) {
	v, d := &c.view, c.dim
	sizes, number := make([]int32, count), make([]int, count)
	for _, j := range nearest {
		sizes[j]++
	}
	first, groups := len(v.Sizes), len(v.Sizes)
	for j, size := range sizes {
		if number[j] = groups; size > 0 {
			groups++
		}
	}
	v.Sizes = longer(v.Sizes, groups)
	bytes := memberBytes(groups - first)
	batch := policy.ClusterBatch{First: first, Count: count, Width: bytes, Of: make([]byte, len(nearest)*bytes)}
	keys, values := make([]float64, count*d), make([]float64, count*width)
	for i, j := range nearest {
		for k := range batch.Width {
			batch.Of[i*batch.Width+k] = byte((number[j] - first) >> (8 * k))
		}
		for k, x := range t.keys[i*d : (i+1)*d] {
			keys[int(j)*d+k] += float64(x)
		}
		for k, x := range t.values[i*width : (i+1)*width] {
			values[int(j)*width+k] += float64(x)
		}
	}
	v.Keys, v.Values = longer(v.Keys, groups*d), longer(v.Values, groups*width)
	for j, size := range sizes {
		if size == 0 {
			continue
		}
		v.Sizes[number[j]] = size
		for k := range d {
			v.Keys[number[j]*d+k] = float32(keys[j*d+k] / float64(size))
		}
		for k := range width {
			v.Values[number[j]*width+k] = float32(values[j*width+k])
		}
	}
	v.Batches = append(v.Batches, batch)
	v.Done += len(nearest)
}

// memberBytes is the width of the numbers of so many clusters.
func memberBytes(clusters int) int {
	switch {
	case clusters <= 1<<8:
		return 1
	case clusters <= 1<<16:
		return 2
	}
	return 4
}

// centred are keys [n, d] less their mean.
func centred(keys []float32, n, d int) []float32 {
	mean := make([]float64, d)
	for i, x := range keys[:n*d] {
		mean[i%d] += float64(x)
	}
	out := make([]float32, n*d)
	for i, x := range keys[:n*d] {
		out[i] = float32(float64(x) - mean[i%d]/float64(n))
	}
	return out
}

// directions makes each centroid the mean of its tokens scaled to length 1; one without tokens stays.
func directions(x []float32, nearest []int32, centroids []float32, d int) {
	sums := make([]float64, len(centroids))
	has := make([]bool, len(centroids)/d)
	for i, j := range nearest {
		has[j] = true
		for k, v := range x[i*d : (i+1)*d] {
			sums[int(j)*d+k] += float64(v)
		}
	}
	for j := range has {
		var length float64
		for _, v := range sums[j*d : (j+1)*d] {
			length += v * v
		}
		for k := 0; has[j] && length > 0 && k < d; k++ {
			centroids[j*d+k] = float32(sums[j*d+k] / math.Sqrt(length))
		}
	}
}

// assign writes the number of the centroid with the largest inner product with each of x, the lowest where several have it.
func (c *Clusters) assign(x, centroids []float32, nearest []int32) {
	d, cols := c.dim, kernels.PanelCols
	count := len(centroids) / d
	c.panel, c.dots = sized(c.panel, d*cols), sized(c.dots, count*cols)
	var best [kernels.PanelCols]float32
	for from := 0; from < len(nearest); from += cols {
		m := min(cols, len(nearest)-from)
		for i := range m {
			for k, v := range x[(from+i)*d:][:d] {
				c.panel[k*cols+i] = v
			}
		}
		kernels.Gemm(c.dots, cols, centroids, d, c.panel, d, count, nil)
		copy(best[:], c.dots[:cols])
		at := nearest[from : from+m]
		clear(at)
		for j := 1; j < count; j++ {
			for i, v := range c.dots[j*cols:][:m] {
				if v > best[i] {
					best[i], at[i] = v, int32(j)
				}
			}
		}
	}
}

func (c *Clusters) reset() { c.view, c.begun = policy.Clusters{}, false }

func (c *Clusters) bytes() int64 {
	v := &c.view
	n := 4 * int64(cap(v.Keys)+cap(v.Values)+cap(v.Sizes))
	for i := range v.Batches {
		n += int64(len(v.Batches[i].Of))
	}
	return n
}

// longer is x with zeros behind up to n elements, in memory of that size: it grows seldom, and by much.
func longer[T any](x []T, n int) []T {
	out := make([]T, n)
	copy(out, x)
	return out
}

// round is to the nearest whole number, halves to even.
func round(x float64) int { return int(math.RoundToEven(x)) }

// divisor is the greatest common one.
func divisor(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
