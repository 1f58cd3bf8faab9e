package serve

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"terrace/engine"
	"terrace/serve/meter/prom"
)

// TestDashboard: docs/grafana.json and docs/server.md name metrics that are there.
func TestDashboard(t *testing.T) {
	b := newBench(t, engine.Options{Context: 100}, Options{})
	b.m.hits.With("host")
	b.m.policies.With("snapkv")
	b.m.requests.With("/v1/completions", "200")
	families, err := b.m.meter.(prom.Meter).Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range families {
		known[f.GetName()] = true
	}
	b.m.places(b.o.Engine.Places())
	known["terrace_kv_bytes"], known["terrace_kv_cache_usage_perc"] = true, true
	for _, file := range []string{"../docs/grafana.json", "../docs/server.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bterrace_[a-z0-9_]+`).FindAllString(string(text), -1) {
			if name != "terrace_" && !known[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s names %s, which no metric is called", file, name)
			}
		}
	}
}
