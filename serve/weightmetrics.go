package serve

import (
	"terrace/engine"
	"terrace/internal/vfs"
	"terrace/serve/meter"
)

// weights registers the accounts of an engine whose weights are not all in memory; they are asked for when metrics are.
func (m *metrics) weights(e *engine.Engine) {
	if e.WeightsUse() == nil {
		return
	}
	of := func(pick func(u *engine.WeightsUse) int64) func() float64 {
		return func() float64 { return float64(pick(e.WeightsUse())) }
	}
	for _, g := range []struct {
		name, help string
		pick       func(u *engine.WeightsUse) int64
	}{
		{"terrace_weights_bytes", "Weights in memory.", func(u *engine.WeightsUse) int64 { return u.ResidentBytes }},
		{"terrace_weights_budget_bytes", "Weights that may be in memory.", func(u *engine.WeightsUse) int64 { return u.BudgetBytes }},
	} {
		m.meter.New(meter.Desc{Kind: meter.Gauge, Name: g.name, Help: g.help, Func: of(g.pick)})
	}
	for _, c := range []struct {
		name, help string
		pick       func(u *engine.WeightsUse) int64
	}{
		{"terrace_weights_read_bytes_total", "Bytes read from the model's files.", func(u *engine.WeightsUse) int64 { return u.ReadBytes }},
		{"terrace_experts_used_total", "Experts that steps used, each once a step and layer; of a dense model layers that do not stay.", func(u *engine.WeightsUse) int64 { return u.Used }},
		{"terrace_experts_hits_total", "Used experts that were in memory when they were chosen.", func(u *engine.WeightsUse) int64 { return u.Hits }},
		{"terrace_experts_predicted_total", "Used experts that a prediction had asked for.", func(u *engine.WeightsUse) int64 { return u.Predicted }},
		{"terrace_experts_wasted_total", "Experts that predictions asked for and the step after did not use.", func(u *engine.WeightsUse) int64 { return u.Wasted }},
		{"terrace_experts_moved_total", "Choices that --expert-bias moved to an expert in memory, once a row and layer.", func(u *engine.WeightsUse) int64 { return u.Bias.Moved }},
		{"terrace_experts_dropped_total", "Choices that --expert-bias left out, once a row and layer.", func(u *engine.WeightsUse) int64 { return u.Bias.Dropped }},
	} {
		m.meter.New(meter.Desc{Kind: meter.Counter, Name: c.name, Help: c.help, Func: of(c.pick)})
	}
	m.disk(e)
}

// disk registers what weights and KV have had of the disk that both lie on.
func (m *metrics) disk(e *engine.Engine) {
	for i, user := range e.DiskUse() {
		for _, c := range []struct {
			name, help string
			pick       func(u *vfs.ShareUse) int64
		}{
			{"bytes", "Bytes asked of the disk that weights and KV share", func(u *vfs.ShareUse) int64 { return u.Bytes }},
			{"turns", "Operations on the disk that weights and KV share", func(u *vfs.ShareUse) int64 { return u.Turns }},
			{"waits", "Operations that waited for the other user of the disk that weights and KV share", func(u *vfs.ShareUse) int64 { return u.Waits }},
		} {
			m.meter.New(meter.Desc{Kind: meter.Counter, Name: "terrace_disk_" + user.Name + "_" + c.name + "_total", Help: c.help + ": " + user.Name + ".", Func: func() float64 {
				if all := e.DiskUse(); i < len(all) {
					return float64(c.pick(&all[i]))
				}
				return 0 // the engine is closing
			}})
		}
	}
}
