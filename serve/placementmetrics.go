package serve

import (
	"slices"

	"terrace/engine/shelf"
	"terrace/serve/meter"
)

// placementMetrics are those of the contexts that --placement keeps.
type placementMetrics struct {
	contexts, bytes        meter.Metric
	moves, profiles, spent counted
	seen                   shelf.Figures
}

// newPlacementMetrics counts from what a keeper has done so far.
func newPlacementMetrics(m meter.Meter, so shelf.Figures) *placementMetrics {
	so.Forms = nil
	labels := []string{"tier", "method", "keep"}
	p := &placementMetrics{
		seen:     so,
		contexts: m.New(meter.Desc{Kind: meter.Gauge, Name: "terrace_placement_contexts", Help: "Contexts that --placement knows, by tier and form (method none: whole; tier computed: not stored).", Labels: labels}),
		bytes:    m.New(meter.Desc{Kind: meter.Gauge, Name: "terrace_placement_bytes", Help: "Their KV; blocks that several share count for each.", Labels: labels}),
		moves:    newCounted(m, meter.Counter, "terrace_placement_moves_total", "Contexts that were put, moved or compressed."),
		profiles: newCounted(m, meter.Counter, "terrace_placement_profiles_total", "Contexts whose quality under each form was measured."),
		spent:    newCounted(m, meter.Counter, "terrace_placement_profile_seconds_total", "Time that this took, while nobody was served."),
	}
	return p
}

// note brings them up to what a keeper says.
func (p *placementMetrics) note(now shelf.Figures) {
	for _, f := range p.seen.Forms {
		if !slices.ContainsFunc(now.Forms, f.Same) {
			p.contexts.Drop(f.Tier, f.Method, shelf.KeepText(f.Keep))
			p.bytes.Drop(f.Tier, f.Method, shelf.KeepText(f.Keep))
		}
	}
	for _, f := range now.Forms {
		p.contexts.With(f.Tier, f.Method, shelf.KeepText(f.Keep)).Set(float64(f.Contexts))
		p.bytes.With(f.Tier, f.Method, shelf.KeepText(f.Keep)).Set(float64(f.Bytes))
	}
	p.moves.Add(float64(now.Moves - p.seen.Moves))
	p.profiles.Add(float64(now.Profiled - p.seen.Profiled))
	p.spent.Add(now.ProfileS - p.seen.ProfileS)
	p.seen = now
}
