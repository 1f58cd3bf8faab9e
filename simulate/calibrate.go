package simulate

import "terrace/internal/clock"

// HostWork is what a run on a FreeDisk has taken and done, all its steps together: Calibrate takes the host's rates from it.
type HostWork struct {
	Outside float64            // seconds outside of the backend's calls
	Layers  float64            // that were computed
	Work    [clock.Works]int64 // as a clock.Metered has counted it
	Free    FreeUse
}

// Calibrate works out what asking the tier below for a record or a token takes, and taking an operation of its device, from a run without
// a device: what is left of its time outside of the backend's calls when a layer's own, scoring and copying have been taken away by the rates at hand.
func (h *Host) Calibrate(w HostWork) {
	c := &h.Compute
	rest := w.Outside - w.Free.Moving.Seconds() - w.Free.Taking.Seconds() - c.Layer*w.Layers - c.Scan*float64(w.Work[clock.Scan])
	if h.Rates.Copy > 0 {
		rest -= float64(w.Work[clock.Gather]) / h.Rates.Copy
	}
	if n := w.Work[clock.Ask]; n > 0 {
		c.Ask = max(0, rest) / float64(n)
	}
	if w.Free.Ops > 0 {
		taking := w.Free.Taking.Seconds()
		if h.Rates.Check > 0 {
			taking -= float64(w.Free.Bytes) / h.Rates.Check
		}
		c.Take = max(0, taking) / float64(w.Free.Ops)
	}
}
