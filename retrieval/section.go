package retrieval

import "terrace/kvmanager"

// rowsShare is the part of the budget that a prompt's rows may take: 1/rowsShare.
const rowsShare = 4

// HoldRows charges the memory of a text's next prompt rows, rowBytes each, that wait between two layers while the prompt passes layer
// by layer, and returns how many: all of rows, or as many chunks as a quarter of the budget holds and two layers of total tokens
// leave free. 0 = none are charged: there is no tier, or no room for more than a chunk. DropRows takes the charge back.
func (f *Shared) HoldRows(t *Sequence, rows, total, rowBytes int) (n int) {
	if !f.Tiered() || f.rows > 0 {
		return 0
	}
	n = rows
	if b := f.o.BudgetBytes; b > 0 {
		x := t.res.growth(kvmanager.Growth{Seq: t.seq, Rows: f.o.ChunkTokens, Tokens: total, ByLayer: true})
		x.Beside += f.indexGrowth(int(t.read), total)
		n = int(min(int64(rows), b/rowsShare/int64(rowBytes), max(0, f.o.KV.Spare(x))/int64(rowBytes)))
	}
	// Where a section ends a chunk would (ChunkRows): the rows that a policy sees in one stay together.
	if left := total - int(t.read); n < left {
		n = max(0, min(n, left-max(1, t.obs.needs.PromptSums)))
		n -= n % f.o.ChunkTokens
	}
	bytes := int64(n) * int64(rowBytes)
	if n <= f.o.ChunkTokens || f.o.KV.Charge(bytes) != nil {
		return 0
	}
	f.rows = bytes
	return n
}

// DropRows takes back what HoldRows has charged.
func (f *Shared) DropRows() {
	f.o.KV.Refund(f.rows)
	f.rows = 0
}

// EndSection says that the text is read up to n, after rows of its prompt that passed layer by layer.
func (t *Sequence) EndSection(n int32) {
	t.read = n
	t.seq.States().Commit(n)
	if t.f.o.WindowOnly && t.Plain() {
		t.seq.Slide(n)
	}
	if t.set.Keeper != nil {
		t.f.o.KV.Release() // what the policy dropped is not to stay resident
	}
}
