package main

import (
	"fmt"
	"strings"

	"terrace/engine"
	"terrace/internal/units"
)

// sayUse says on stderr what a generation took, where --verbose asks for it.
func (gen *generateCommand) sayUse(l *loaded, f *sampleFlags, res *engine.Result) {
	if !f.verbose {
		return
	}
	t := &res.Timings
	parts := []string{
		fmt.Sprintf("load %.2f s", l.loadTime.Seconds()),
		fmt.Sprintf("prompt %d tokens, %.1f tokens/s", res.PromptTokens, t.PrefillTPS),
		fmt.Sprintf("first token after %.3f s", t.TTFT.Seconds()),
		fmt.Sprintf("%d tokens, %.1f tokens/s", len(res.IDs), t.DecodeTPS),
		"KV at most " + units.FormatBytes(l.engine.KV().PeakBytes) + " in host memory",
	}
	if u := res.Speculation; u != nil {
		parts = append(parts, fmt.Sprintf("%d of %d guesses right", u.Accepted, u.Drafted))
	}
	if f.o.Temperature > 0 {
		parts = append(parts, fmt.Sprintf("seed %d", f.o.Seed))
	}
	fmt.Fprintf(gen.stderr, "infer: %s\n", strings.Join(parts, "; "))
}
