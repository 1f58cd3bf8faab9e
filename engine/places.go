package engine

import (
	"fmt"

	"terrace/engine/tier"
	"terrace/offload"
)

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
		for _, level := range offload.Levels(e.tiers.store) {
			st := level.Stats()
			list = append(list, Place{Name: level.Name(), HeldBytes: st.UsedBytes, PeakBytes: st.PeakBytes, CapacityBytes: st.CapacityBytes})
		}
	}
	if e.drives != nil {
		for i, d := range e.drives.Use() {
			list = append(list, Place{Name: driveName(i, len(socketsOf(e.o.Tiers))), HeldBytes: d.HeldBytes, PeakBytes: d.PeakBytes})
		}
	}
	return list
}

// driveName is the tier's name of drive i of several that attend.
func driveName(i, drives int) string {
	if drives == 1 {
		return string(tier.CSD)
	}
	return fmt.Sprint(tier.CSD, i)
}

// ResetKVPeak starts a new measurement of the tiers' PeakBytes from what is in use now. A device's goes on.
func (e *Engine) ResetKVPeak() {
	e.kv.ResetPeak()
	if e.tiers != nil {
		e.tiers.store.ResetPeak()
	}
	if e.drives != nil {
		e.drives.ResetPeak()
	}
}
