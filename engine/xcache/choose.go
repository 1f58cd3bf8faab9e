package xcache

import (
	"fmt"

	"terrace/internal/units"
)

// Cost is what a token of one layer takes.
type Cost struct {
	KVBytes, RowBytes int     // below host memory, as keys and values and as a row
	FLOPs             float64 // of projecting its keys and values again
}

// Rates are this machine's.
type Rates struct {
	TierBytes float64 // a second, that the tier reads in large operations
	FLOPs     float64 // a second, of the projection
}

// Pays reports whether reading the row and projecting it again takes less time than reading keys and values, one after the other: the
// processor has other work while a tier reads. Unknown rates (0) never pay.
func (c Cost) Pays(r Rates) bool {
	if r.TierBytes <= 0 || r.FLOPs <= 0 {
		return false
	}
	return float64(c.RowBytes)/r.TierBytes+c.FLOPs/r.FLOPs < float64(c.KVBytes)/r.TierBytes
}

// Choice is which layers keep rows.
type Choice struct {
	Layers []bool
	ByRate bool
	Costs  []Cost // [layers] zero where a layer keeps nothing
	Rates  Rates  // zero where a share was given
}

// Choose takes layers by rates.
func Choose(costs []Cost, r Rates) Choice {
	c := Choice{Layers: make([]bool, len(costs)), ByRate: true, Costs: costs, Rates: r}
	for i := range costs {
		c.Layers[i] = costs[i].Pays(r)
	}
	return c
}

// Spread takes a share of the layers, evenly: two that follow each other are read at the same time.
func Spread(costs []Cost, share float64) Choice {
	c := Choice{Layers: make([]bool, len(costs)), Costs: costs}
	owed := 0.0
	for i := range costs {
		if costs[i].KVBytes == 0 {
			continue
		}
		if owed += share; owed >= 1-1e-9 {
			c.Layers[i] = true
			owed--
		}
	}
	return c
}

// Count is how many layers keep rows, of how many that keep anything.
func (c Choice) Count() (rows, all int) {
	for i := range c.Layers {
		if c.Layers[i] {
			rows++
		}
		if c.Costs[i].KVBytes > 0 {
			all++
		}
	}
	return rows, all
}

// String says what was chosen and why, in one line.
func (c Choice) String() string {
	rows, all := c.Count()
	kv, row, flops := 0, 0, 0.0
	for _, x := range c.Costs {
		if x.KVBytes > 0 {
			kv, row, flops = kv+x.KVBytes, row+x.RowBytes, flops+x.FLOPs
		}
	}
	n := max(all, 1)
	text := fmt.Sprintf("xcache: %d of %d layers keep rows (%d bytes a token and layer, keys and values %d)", rows, all, row/n, kv/n)
	if !c.ByRate {
		return text
	}
	r, read := c.Rates, func(bytes int) float64 { return 1e6 * float64(bytes) / float64(n) / c.Rates.TierBytes }
	return text + fmt.Sprintf(": the tier reads %s/s, so a row %.2f µs and keys and values %.2f µs; a projection of %.2f MFLOP at %.1f GFLOP/s takes %.2f µs",
		units.FormatBytes(int64(r.TierBytes)), read(row), read(kv), flops/float64(n)/1e6, r.FLOPs/1e9, 1e6*flops/float64(n)/r.FLOPs)
}
