package engine

import "fmt"

// underWayBytes is how much may be under way between host memory and a tier below it: what is staged for it counts as host
// memory, so that little of that means little of this.
func (o *Options) underWayBytes() int64 {
	const most, least = 2 << 20, 64 << 10
	if o.KVBudgetBytes == 0 {
		return most
	}
	return max(least, min(most, o.KVBudgetBytes/32))
}

// chargeStore counts what the lower tier holds in host memory (index, checksums, staging) against the budget. It grows with
// what is stored, so it is looked at before each pass.
func (e *Engine) chargeStore() error {
	n := e.tiers.store.Stats().HostBytes
	if more := n - e.tiers.charged; more > 0 {
		if err := e.kv.Charge(more); err != nil {
			return fmt.Errorf("engine: what tier %s keeps in host memory: %w", e.tiers.store.Name(), err)
		}
	} else {
		e.kv.Refund(-more)
	}
	e.tiers.charged = n
	return nil
}
