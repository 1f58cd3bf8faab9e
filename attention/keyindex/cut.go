package keyindex

// Cut forgets a KV head's tokens behind those at positions pos, which are the first of the index: they were taken back. What the prompt has
// fixed (scales, projections) stays. A head whose sketch cannot go back (clusters, product codes, what a stream has taken) is left as it
// is: Refresh builds it again from the cache. Bounds go back to where a block begins, and Refresh reads the block's keys.
func (h *sketch) Cut(pos []int32) {
	n := len(pos)
	if h.slots != nil || h.tokens <= n || n == 0 || !h.cuts(n) {
		return
	}
	for _, b := range h.bounds {
		n = min(n, n/b.Block*b.Block)
	}
	if h.codes != nil {
		h.codes.Cut(n)
	}
	if h.columns != nil {
		h.columns.Cut(n)
	}
	for _, b := range h.bounds {
		b.cut(n)
	}
	if h.hashes != nil {
		h.hashes.Cut(n)
	}
	if h.followed != nil {
		h.followed.pos = h.followed.pos[:n]
	}
	if h.tokens = n; n > 0 {
		h.last = pos[n-1]
	}
}

// cuts reports whether what is kept of the tokens from number n on can be forgotten alone.
func (h *sketch) cuts(n int) bool {
	if h.product != nil || h.groups != nil || h.rounded != nil || h.columns != nil && h.columns.below != nil && n < len(h.columns.at)*tileColumns {
		return false
	}
	for _, b := range h.bounds {
		if b.low.below != nil && n/b.Block < max(len(b.low.at), len(b.high.at))*tileColumns {
			return false
		}
	}
	return h.hashes != nil || h.codes != nil || h.columns != nil || len(h.bounds) > 0
}

// cut forgets the tokens from number n on, where a block begins.
func (b *Bounds) cut(n int) {
	b.tokens = n
	b.low.Cut(n / b.Block)
	b.high.Cut(n / b.Block)
}
