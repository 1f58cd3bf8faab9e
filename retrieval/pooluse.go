package retrieval

import "terrace/policy"

// PoolUse counts what hot and cold pools that decide by themselves (policy.Placer.Decides) have moved, over all texts.
type PoolUse struct {
	Steps             int64 // decode steps of texts
	Promoted, Demoted int64 // tokens, each over all layers
	PromotedBytes     int64 // of their KV
	Tokens            int64 // of the texts, summed over Steps
}

// Migrated is the tokens that changed place in a step over the tokens of the text, on average: the thrashing of HillInfer's
// Figure 4. 0 before the first step.
func (u PoolUse) Migrated() float64 {
	if u.Tokens == 0 {
		return 0
	}
	return float64(u.Promoted+u.Demoted) / float64(u.Tokens)
}

// Minus is what was counted since an earlier report.
func (u PoolUse) Minus(x PoolUse) PoolUse {
	return PoolUse{u.Steps - x.Steps, u.Promoted - x.Promoted, u.Demoted - x.Demoted, u.PromotedBytes - x.PromotedBytes, u.Tokens - x.Tokens}
}

// Plus adds another report.
func (u PoolUse) Plus(x PoolUse) PoolUse { return u.Minus(PoolUse{}.Minus(x)) }

// add counts a step's moves of a text of n tokens.
func (u *PoolUse) add(n int, m *policy.Moves, tokenBytes int) {
	u.Steps++
	u.Promoted += int64(len(m.Promote))
	u.Demoted += int64(len(m.Demote))
	u.PromotedBytes += int64(len(m.Promote) * tokenBytes)
	u.Tokens += int64(n)
}
