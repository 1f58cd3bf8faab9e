package prefixcache

import (
	"fmt"

	"terrace/engine"
	"terrace/kvmanager/contexts"
	"terrace/policy"
)

// Pack makes the records of ids, which a session has read under a policy (nil = full attention): the blocks of a plain prefix, or
// the parts of a compressed context. They are those that Find looks for. A session may have read more behind ids.
func (c *Cache) Pack(s *engine.Session, ids []int, under *policy.Spec, salt string) ([]*contexts.Record, error) {
	if under == nil {
		under = c.full
	}
	if why := c.Unfit(under); why != "" {
		return nil, fmt.Errorf("prefixcache: contexts cannot be packed: %s: %w", why, engine.ErrOption)
	}
	if s.Tokens() < len(ids) || c.quantised() {
		return nil, fmt.Errorf("prefixcache: pack of %d tokens of a session that has read %d (KV in float types only): %w", len(ids), s.Tokens(), engine.ErrOption)
	}
	if c.state > 0 && under.Causal() {
		return nil, fmt.Errorf("prefixcache: blocks of a model with recurrent layers are made while the prompt is read: %w", engine.ErrOption)
	}
	p := &Prefix{c: c, ids: ids, under: under, salt: salt, root: c.root(len(ids), under, salt, false)}
	if !under.Causal() {
		p.whole, p.context = true, contexts.ContextKey(p.root, ids)
		return c.parts(s, p, c.ranksOf(s))
	}
	p.keys = contexts.Chain(p.root, ids, c.block)
	p.read = len(p.keys)
	records := make([]*contexts.Record, 0, len(p.keys))
	for i := range p.keys {
		r, err := c.blockRecord(s, p, i)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// PackedBytes is the most that the records of so many kept tokens take, before they are made.
func (c *Cache) PackedBytes(tokens int, under *policy.Spec) int64 {
	if under == nil || under.Causal() {
		return int64(tokens/c.block) * c.slotBytes(false, c.state)
	}
	return int64(max(1, pages(tokens, c.block))-1)*c.slotBytes(under.Ranks(), 0) + c.slotBytes(under.Ranks(), c.state)
}

// Unplaced says why contexts of this engine cannot be packed whole and compressed, as a placement in a server does; empty = they can.
func (c *Cache) Unplaced() string {
	switch {
	case c.unfit != "":
		return c.unfit
	case c.quantised():
		return "KV is quantised, and cannot be compressed once it is kept"
	case c.state > 0:
		return "the model has recurrent layers, whose state is known where a prompt was read alone"
	case c.e.Model().LongRopeAt() > 0:
		return "the model turns keys by the length of the text (longrope)"
	case !c.e.Policy().Lossless():
		return fmt.Sprintf("policy %s: contexts are kept under full attention", c.e.Policy())
	}
	return ""
}

// BlockTokens is how many tokens a block of a plain prefix has.
func (c *recordForm) BlockTokens() int { return c.block }

// Blocks are the keys of the whole blocks of ids, as full attention reads them.
func (c *Cache) Blocks(ids []int, salt string) []contexts.Key {
	return contexts.Chain(c.root(len(ids), c.full, salt, false), ids, c.block)
}

// PartKeys are the keys of a compressed context of ids under a policy, in so many parts.
func (c *Cache) PartKeys(ids []int, under *policy.Spec, salt string, parts int) (keys []contexts.Key) {
	context := contexts.ContextKey(c.root(len(ids), under, salt, false), ids)
	for i := range min(parts, maxParts) {
		keys = append(keys, contexts.PartKey(context, i))
	}
	return keys
}

// Stands says which model and settings the keys are of.
func (c *Cache) Stands() string { return c.root(0, c.full, "", false).String()[:16] }
