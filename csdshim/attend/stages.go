package attend

import (
	"slices"
	"time"

	"terrace/csdshim"
)

// StageNames are the parts of a request's time, in the order in which a moment is given to them.
var StageNames = []string{"flash", "filters", "kernels", "argtopk", "link", "rest"}

// stageUnits are the units behind them; rest has none.
var stageUnits = []string{"channel", "filter", "kernel", "argtopk", "link"}

// ByStage gives each moment from 0 to total to one stage, by name: to the first of [StageNames] at which a unit works then. Stages may be of
// several requests that arrived together. What no unit worked in, the command and the link's latency, is rest; all add up to total.
func ByStage(stages []csdshim.Stage, total time.Duration) map[string]time.Duration {
	type edge struct {
		at    uint64
		stage int
		by    int
	}
	var edges []edge
	for _, s := range stages {
		if i := slices.Index(stageUnits, s.Unit.String()); i >= 0 && s.To > s.From {
			edges = append(edges, edge{s.From, i, 1}, edge{min(s.To, uint64(total)), i, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return int(int64(a.at) - int64(b.at)) })
	parts, working, last := map[string]time.Duration{}, make([]int, len(stageUnits)), uint64(0)
	give := func(to uint64) {
		name := "rest"
		if i := slices.IndexFunc(working, func(n int) bool { return n > 0 }); i >= 0 {
			name = StageNames[i]
		}
		parts[name] += time.Duration(to - last)
		last = to
	}
	for _, e := range edges {
		if e.at > last {
			give(e.at)
		}
		working[e.stage] += e.by
	}
	if uint64(total) > last {
		give(uint64(total))
	}
	return parts
}
