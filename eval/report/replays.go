package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"terrace/eval"
	"terrace/eval/run"
)

// replayTables are what a group shows of replays: tiers, configurations and rates.
type replayTables struct{ *Group }

// tiersOf are where the requests of a group's replays found their contexts, fastest first; none last.
func (g replayTables) tiersOf() (out []string) {
	for _, tier := range []string{"host", "ssd", "valkey", "s3", "none"} {
		if slices.ContainsFunc(g.Series, func(s *Series) bool { return s.Replay != nil && s.Replay.Hits[tier] > 0 }) {
			out = append(out, tier)
		}
	}
	return out
}

// replays reports whether a group has replays, and whether rates were searched.
func (g replayTables) replays() (some, rates bool) {
	for _, s := range g.Series {
		some = some || s.Replay != nil
		rates = rates || s.Replay != nil && s.Replay.Sustained != nil
	}
	return some, rates
}

// rateText is a sustained rate of arrivals, with what it keeps.
func rateText(r *run.ReplayResult) string {
	if r == nil || r.Sustained == nil {
		return "-"
	}
	s := r.Sustained
	text := number(s.QPS)
	if s.QPS > 0 && s.Above == 0 {
		text = "≥ " + text
	}
	return fmt.Sprintf("%s (quality ≥ %g %%, TTFT ≤ %g ms)", text, s.Floor, s.Objective)
}

// writeReplays prints what replays have beside other runs: times from arrival, where contexts were found, the rate sustained.
func (g replayTables) writeReplays(w io.Writer) error {
	some, rates := g.replays()
	if !some {
		return nil
	}
	tiers := g.tiersOf()
	fmt.Fprint(w, "\nreplays: means from arrival, requests by the slowest tier used, and series number:\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := append([]string{"", "mean TTFT ms", "mean end ms"}, tiers...)
	if rates {
		head = append(head, "requests/s")
	}
	fmt.Fprintln(t, strings.Join(head, "\t")+"\t")
	for _, s := range g.Series {
		if s.Replay == nil {
			continue
		}
		fmt.Fprintf(t, "%d\t%.0f\t%.0f\t", s.Number, s.Replay.TTFTMean, s.Replay.E2EMean)
		for _, tier := range tiers {
			fmt.Fprintf(t, "%.0f%%\t", 100*s.Replay.Hits[tier])
		}
		if rates {
			fmt.Fprintf(t, "%s\t", rateText(s.Replay))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// configsOf are how the contexts that a group's replays found were compressed: the whole first, then by method and share kept; nil where
// all were whole.
func (g replayTables) configsOf() (out []string) {
	for _, s := range g.Series {
		if s.Replay == nil {
			continue
		}
		for config := range s.Replay.Configs {
			if !slices.Contains(out, config) {
				out = append(out, config)
			}
		}
	}
	slices.Sort(out)
	if i := slices.Index(out, wholeConfig); i >= 0 {
		out = slices.Insert(slices.Delete(out, i, i+1), 0, wholeConfig)
	}
	if len(out) == 1 && out[0] == wholeConfig {
		return nil
	}
	return out
}

// wholeConfig is a context from which nothing was dropped.
const wholeConfig = "none 1"

// writeConfigs prints how the contexts that were found were compressed, and what a placement did while nobody waited.
func (g replayTables) writeConfigs(w io.Writer) error {
	configs := g.configsOf()
	if len(configs) == 0 {
		return nil
	}
	fmt.Fprint(w, "\nreplays: contexts that were found, by method and share kept, contexts put somewhere and profiled again, and series number:\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\t"+strings.Join(configs, "\t")+"\tput\tprofiled again\t")
	for _, s := range g.Series {
		if s.Replay == nil || len(s.Replay.Configs) == 0 {
			continue
		}
		fmt.Fprintf(t, "%d\t", s.Number)
		for _, config := range configs {
			fmt.Fprintf(t, "%.0f%%\t", 100*s.Replay.Configs[config])
		}
		put, again := "-", "-"
		if use := s.Replay.StoreUse; use != nil {
			put, again = fmt.Sprint(use.Moves), fmt.Sprint(use.Reprofiled)
		}
		fmt.Fprintf(t, "%s\t%s\t\n", put, again)
	}
	return t.Flush()
}

// writeRates prints every rate that was tried: quality and times as the arrivals come faster.
func (g replayTables) writeRates(w io.Writer) error {
	if _, rates := g.replays(); !rates {
		return nil
	}
	fmt.Fprint(w, "\nrates of arrivals that were tried, and series number:\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\trequests/s\tquality\tmean TTFT ms\tmean ITL ms\tmean end ms\tfailed\tkept\t")
	for _, s := range g.Series {
		if s.Replay == nil || s.Replay.Sustained == nil {
			continue
		}
		for _, p := range s.Replay.Sustained.Probes {
			kept, rate := "no", number(p.QPS)
			if p.Met {
				kept = "yes"
			}
			if p.Speed == 0 {
				rate = "one at a time"
			}
			fmt.Fprintf(t, "%d\t%s\t%.1f\t%.0f\t%.1f\t%.0f\t%d\t%s\t\n", s.Number, rate, p.Score, p.TTFT, p.ITL, p.E2E, p.Failed, kept)
		}
	}
	return t.Flush()
}

// replayHead and replayCells are the columns of a Markdown table that replays have.
func (g replayTables) replayHead() (out []string) {
	some, rates := g.replays()
	if some {
		out = append(out, "mean TTFT", "mean end", "hits")
	}
	if rates {
		out = append(out, "requests/s")
	}
	return out
}

func (g replayTables) replayCells(s *Series) (out []string) {
	some, rates := g.replays()
	if !some {
		return nil
	}
	out = []string{"–", "–", "–"}
	if r := s.Replay; r != nil {
		var hits []string
		for _, tier := range g.tiersOf() {
			if r.Hits[tier] > 0 {
				hits = append(hits, fmt.Sprintf("%s %.0f %%", tier, 100*r.Hits[tier]))
			}
		}
		out = []string{fmt.Sprintf("%.0f ms", r.TTFTMean), fmt.Sprintf("%.0f ms", r.E2EMean), strings.Join(hits, ", ")}
	}
	if rates {
		out = append(out, rateText(s.Replay))
	}
	return out
}

// probesOf are the rates tried of a series, without that at which nobody waits.
func probesOf(s *Series) (out []eval.RateProbe) {
	if s.Replay == nil || s.Replay.Sustained == nil {
		return nil
	}
	for _, p := range s.Replay.Sustained.Probes {
		if p.Speed > 0 {
			out = append(out, p)
		}
	}
	return out
}

// rateChart draws the mean time to the first token over the rate of arrivals, a line a placement (EvicPress, Fig. 8); nil where no
// rates were tried.
func (g replayTables) rateChart() *frontChart {
	if _, rates := g.replays(); !rates {
		return nil
	}
	c := &frontChart{Title: "Mean time to the first token as arrivals come faster", XLabel: "arrivals, requests a second", YLabel: "mean TTFT, seconds", Width: chartWidth, Height: 300, Left: 46, Right: chartWidth - 16, Top: 14, Low: 256}
	fast, late := 0.0, 0.0
	for _, s := range g.Series {
		for _, p := range probesOf(s) {
			if fast = max(fast, p.QPS); p.Met {
				late = max(late, p.TTFT/1000)
			}
		}
	}
	if fast == 0 || late == 0 {
		return nil
	}
	x, y := niceScale(0, fast, c.Left, c.Right, 5), niceScale(0, 2*late, c.Low, c.Top, 5)
	c.XTicks, c.YTicks = x.ticks(), y.ticks()
	styles := charts(g).styles()
	for _, s := range g.Series {
		path, st := "", styles[s.family]
		for _, p := range probesOf(s) {
			if p.TTFT/1000 > 2*late { // beyond what is of interest
				break
			}
			px, py := x.at(p.QPS), y.at(p.TTFT/1000)
			path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(len(path), 1)], px, py)
			c.Points = append(c.Points, point{X: px, Y: py, Class: st.class, Path: marker(st.shape, px, py, 4), Title: fmt.Sprintf("%d %s: %s requests/s, TTFT %.0f ms, quality %.1f", s.Number, s.Label, number(p.QPS), p.TTFT, p.Score)})
		}
		if path != "" {
			last := &c.Points[len(c.Points)-1]
			last.Label, last.LX, last.LY = fmt.Sprint(s.Number), last.X, last.Y-9
			c.Lines = append(c.Lines, stroke{st.class, path})
		}
	}
	return c
}
