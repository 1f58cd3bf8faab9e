package engine

import "fmt"

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
