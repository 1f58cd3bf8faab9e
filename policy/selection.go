package policy

// Selection are indices of cached tokens per KV head, ascending and unique; All stands for every token of every head.
type Selection struct {
	All   bool
	Heads [][]int32
	// Share, if not empty, is [Heads] (query heads): the part a of the attention that the picks are estimated to hold. The
	// engine then makes the output a·out + (1-a)·mean of the KV head's values (SparQ).
	Share []float32
	// Estimates, where Needs.Estimates says so, stand for tokens that are not read.
	Estimates Estimates
	// Scanned is how many bytes the policy itself read to choose and to estimate, beside what the [Scorer] multiplied: of clusters.
	Scanned int64
}

// Reset empties the picks for a number of KV heads and keeps the memory.
func (p *Selection) Reset(kvHeads int) {
	p.All, p.Share, p.Scanned = false, p.Share[:0], 0
	p.Estimates.LogSum, p.Estimates.Values = p.Estimates.LogSum[:0], p.Estimates.Values[:0]
	for len(p.Heads) < kvHeads {
		p.Heads = append(p.Heads, nil)
	}
	p.Heads = p.Heads[:kvHeads]
	for i := range p.Heads {
		p.Heads[i] = p.Heads[i][:0]
	}
}
