package serve

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"terrace/engine/shelf"
)

// placementMetrics are those of the contexts that --placement keeps.
type placementMetrics struct {
	contexts, bytes        *prometheus.GaugeVec
	moves, profiles, spent prometheus.Counter
	seen                   shelf.Figures
}

// newPlacementMetrics counts from what a keeper has done so far.
func newPlacementMetrics(r *prometheus.Registry, so shelf.Figures) *placementMetrics {
	so.Forms = nil
	labels := []string{"tier", "method", "keep"}
	p := &placementMetrics{
		seen:     so,
		contexts: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "terrace_placement_contexts", Help: "Contexts that --placement knows, by tier and form (method none: whole; tier computed: not stored)."}, labels),
		bytes:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "terrace_placement_bytes", Help: "Their KV; blocks that several share count for each."}, labels),
		moves:    prometheus.NewCounter(prometheus.CounterOpts{Name: "terrace_placement_moves_total", Help: "Contexts that were put, moved or compressed."}),
		profiles: prometheus.NewCounter(prometheus.CounterOpts{Name: "terrace_placement_profiles_total", Help: "Contexts whose quality under each form was measured."}),
		spent:    prometheus.NewCounter(prometheus.CounterOpts{Name: "terrace_placement_profile_seconds_total", Help: "Time that this took, while nobody was served."}),
	}
	r.MustRegister(p.contexts, p.bytes, p.moves, p.profiles, p.spent)
	return p
}

// note brings them up to what a keeper says.
func (p *placementMetrics) note(now shelf.Figures) {
	for _, f := range p.seen.Forms {
		if !slices.ContainsFunc(now.Forms, f.Same) {
			p.contexts.DeleteLabelValues(f.Tier, f.Method, shelf.KeepText(f.Keep))
			p.bytes.DeleteLabelValues(f.Tier, f.Method, shelf.KeepText(f.Keep))
		}
	}
	for _, f := range now.Forms {
		p.contexts.WithLabelValues(f.Tier, f.Method, shelf.KeepText(f.Keep)).Set(float64(f.Contexts))
		p.bytes.WithLabelValues(f.Tier, f.Method, shelf.KeepText(f.Keep)).Set(float64(f.Bytes))
	}
	p.moves.Add(float64(now.Moves - p.seen.Moves))
	p.profiles.Add(float64(now.Profiled - p.seen.Profiled))
	p.spent.Add(now.ProfileS - p.seen.ProfileS)
	p.seen = now
}
