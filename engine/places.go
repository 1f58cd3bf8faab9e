package engine

import "terrace/engine/tier"

// Place is a tier as it is now.
type Place = tier.Place

// Places are the tiers, fastest first; host memory is always one of them.
func (e *Engine) Places() []Place {
	var list []Place
	if keeper := e.device.keeper; keeper != nil {
		n := keeper.DeviceUse().KVPeakBytes // copies that come and go: a device tells of the most alone
		list = append(list, Place{Name: string(tier.Device), HeldBytes: n, PeakBytes: n, CapacityBytes: e.o.DeviceKVBytes})
	}
	kv := e.kv.Stats()
	list = append(list, Place{Name: string(tier.Host), HeldBytes: kv.InUseBytes, PeakBytes: kv.PeakBytes, CapacityBytes: e.o.KVBudgetBytes})
	if e.tiers != nil {
		st := e.tiers.store.Stats()
		list = append(list, Place{Name: e.tiers.store.Name(), HeldBytes: st.UsedBytes, PeakBytes: st.PeakBytes, CapacityBytes: st.CapacityBytes})
	}
	return list
}
