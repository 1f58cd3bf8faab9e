package retrieval

import "terrace/policy"

// ReuseUse counts the groups of tokens that a policy which reads groups (policy.Grouped) has asked for on tiers, over all layers,
// steps and texts. Tokens that do not fill a group yet are not in it.
type ReuseUse struct {
	Asked, Found, Read int64 // groups: asked for; of them those whole in host memory; the others, read from the tier below
	GroupBytes         int64 // K and V of a group over all KV heads of a layer, in the cache's element types; 0 = none was asked for
}

// Minus is what was counted since an earlier report.
func (u ReuseUse) Minus(x ReuseUse) ReuseUse {
	return ReuseUse{u.Asked - x.Asked, u.Found - x.Found, u.Read - x.Read, u.GroupBytes}
}

// Plus adds another report.
func (u ReuseUse) Plus(x ReuseUse) ReuseUse {
	return ReuseUse{u.Asked + x.Asked, u.Found + x.Found, u.Read + x.Read, max(u.GroupBytes, x.GroupBytes)}
}

// countGroups counts the groups among a layer's picks, which all KV heads share, before they are fetched.
func countGroups(c *cached, layer int, picks []int32) {
	grouped, ok := c.t.set.Selector.(policy.Grouped)
	if !ok {
		return
	}
	size, use := grouped.GroupTokens(), &c.t.f.accounts.reuse
	use.GroupBytes = int64(size) * c.t.f.layerBytes(layer, 1)
	whole := int(c.t.read) / size * size // behind it: the rolling buffer and the newest
	for i := 0; i+size <= len(picks) && int(picks[i]) < whole; i += size {
		use.Asked++
		found := true
		for _, index := range picks[i : i+size] {
			found = found && c.cache.Has(layer, 0, index)
		}
		if found {
			use.Found++
		} else {
			use.Read++
		}
	}
}
