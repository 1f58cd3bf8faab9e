package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	evalrun "terrace/eval/run"
)

// contextData writes two contexts and a trace of six requests.
func contextData(t *testing.T) (trace, contexts string) {
	t.Helper()
	dir := t.TempDir()
	trace, contexts = filepath.Join(dir, "t.jsonl"), filepath.Join(dir, "c.jsonl")
	var lines strings.Builder
	for _, id := range []string{"a", "b", "a", "b", "b", "a"} {
		lines.WriteString(`{"at_s":0,"context":"` + id + `","question":" so?"}` + "\n")
	}
	text := strings.Repeat("ab c ", 24)
	if err := os.WriteFile(trace, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(contexts, []byte(`{"id":"a","text":"`+text+`","questions":["x"]}`+"\n"+`{"id":"b","text":"b`+text+`","questions":["x"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return trace, contexts
}

// TestEvalContexts: a replay's files say what cli users and compare read; a second call finds everything done.
func TestEvalContexts(t *testing.T) {
	trace, contexts := contextData(t)
	t.Setenv("TERRACE_DATA", "/nowhere") // of other suites
	out := filepath.Join(t.TempDir(), "run")
	args := []string{"eval", "-m", tinyModel, "-t", "1", "--suite", "contexts", "--trace", trace, "--contexts", contexts, "--speed", "0", "--max-tokens", "4", "--quality", "token-f1",
		"--store", "host=4MiB", "--store", "ssd=" + filepath.Join(t.TempDir(), "kv") + ",64MiB", "--placement", "none", "--placement", "lru", "--placement", "evicpress:alpha=0.1,methods=knorm,keeps=0.5", "--out", out}
	for run := range 2 {
		code, _, errs := inferWith(t, "", args...)
		if code != 0 || strings.Contains(errs, "answers from the whole KV") != (run == 0) {
			t.Fatalf("%d %s", code, errs)
		}
	}
	res, outcomes, err := evalrun.Read(out)
	if err != nil || len(outcomes) != 18 || len(res.Policies) != 3 || res.QualityMetric != "token-f1" || !res.Complete {
		t.Fatalf("%d outcomes, %+v, %v", len(outcomes), res, err)
	}
	for _, p := range res.Policies {
		if p.N != 6 || p.Failed != 0 || p.ReplayResult == nil || p.TTFTMean <= 0 || p.Source != "measured" || p.Mean == nil {
			t.Errorf("%+v", p)
		}
	}
	if lru := res.Policies[1]; lru.Hits["none"] != 1.0/3 || lru.StorePeak["host"] <= 0 || *lru.Mean != 100 || len(lru.Configs) != 1 || lru.Configs["none 1"] != 1 {
		t.Errorf("lru: %+v", lru.ReplayResult)
	}
	if e := res.Policies[2]; e.Configs["none 1"]+e.Configs["knorm 0.5"] != 1 || len(res.Policies[0].Configs) != 0 {
		t.Errorf("evicpress: %+v, none: %+v", e.ReplayResult, res.Policies[0].ReplayResult)
	}
	raw, err := os.ReadFile(filepath.Join(out, "samples.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var line map[string]any
	if err := json.Unmarshal(raw[:strings.IndexByte(string(raw), '\n')], &line); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"policy", "id", "context", "question", "pred", "score", "prompt_tokens", "ttft_ms", "queue_ms", "cached_tokens", "cache_tier", "method", "keep"} {
		if _, ok := line[key]; !ok {
			t.Errorf("samples.jsonl has no %s: %v", key, line)
		}
	}
	if code, table, errs := inferWith(t, "", "compare", out, "--against", "none", "--html", filepath.Join(out, "c.html")); code != 0 || !strings.Contains(table, "evicpress") || strings.Contains(table, "knorm 0.5  put  profiled again") != (res.Policies[2].Configs["knorm 0.5"] > 0) {
		t.Errorf("compare: %d %s %s", code, table, errs)
	}
	if page, err := os.ReadFile(filepath.Join(out, "c.html")); err != nil || !strings.Contains(string(page), "mean TTFT, seconds") {
		t.Errorf("the page has no chart of quality and mean TTFT: %v", err)
	}
}

// TestEvalContextsRate: arrivals are not waited for; the rate sustained is in the results and in compare; a second call with another
// objective replays no rate that the folder has.
func TestEvalContextsRate(t *testing.T) {
	trace, contexts := contextData(t)
	raw, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	for i := range lines { // two hours
		lines[i] = strings.Replace(lines[i], `"at_s":0`, fmt.Sprintf(`"at_s":%d`, i*1440), 1)
	}
	if err := os.WriteFile(trace, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "run")
	args := []string{"eval", "-m", tinyModel, "-t", "1", "--suite", "contexts", "--trace", trace, "--contexts", contexts, "--skip-idle", "--max-tokens", "2", "--quality", "token-f1",
		"--store", "host=4MiB", "--placement", "none", "--placement", "lru", "--out", out, "--qps-quality", "99"}
	var probes [2]int
	for i, objective := range []string{"5s", "1us"} {
		if code, _, errs := inferWith(t, "", append(args, "--qps-ttft", objective)...); code != 0 {
			t.Fatalf("%d %s", code, errs)
		}
		res, _, err := evalrun.Read(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range res.Policies {
			s := p.Sustained
			if s == nil || s.Floor != 99 || (s.QPS > 0) != (i == 0) || !p.IdleSkipped || p.E2EMean < p.TTFTMean || len(s.Probes) == 0 {
				t.Errorf("%s within %s: %+v", p.Policy, objective, s)
			}
		}
		raw, err := os.ReadFile(filepath.Join(out, "probes.json"))
		if err != nil {
			t.Fatal(err)
		}
		probes[i] = strings.Count(string(raw), `"speed"`)
	}
	if probes[0] < 6 || probes[1] != probes[0] {
		t.Errorf("%v rates were probed, want none for the second objective", probes)
	}
	if code, table, errs := inferWith(t, "", "compare", out, "--against", "none"); code != 0 || !strings.Contains(table, "requests/s") || !strings.Contains(table, "one at a time") {
		t.Errorf("compare: %d %s %s", code, table, errs)
	}
}

func TestEvalContextsRefuses(t *testing.T) {
	trace, contexts := contextData(t)
	base := []string{"eval", "-m", tinyModel, "--suite", "contexts", "--trace", trace, "--contexts", contexts, "--out", t.TempDir()}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, exitUsage, "--placement"},
		{[]string{"--placement", "lru"}, exitUsage, "--store"},
		{[]string{"--placement", "lrv"}, exitUsage, "lru"},
		{[]string{"--placement", "none", "--placement", "none"}, exitUsage, "twice"},
		{[]string{"--placement", "none", "--speed", "-1"}, exitUsage, "--speed"},
		{[]string{"--placement", "none", "--qps-ttft", "-1s"}, exitUsage, "--qps-ttft"},
		{[]string{"--placement", "none", "--qps-quality", "101"}, exitUsage, "--qps-quality"},
		{[]string{"--placement", "none", "--policy", "full"}, exitUsage, "--policy"},
		{[]string{"--placement", "none", "--quality", "bleu"}, exitUsage, "bleu"},
		{[]string{"--placement", "none", "--contexts", trace}, exitData, "line 1"},
		{[]string{"--placement", "none", "--store", "tape=1GiB"}, exitUsage, "tape"},
	} {
		code, _, errs := inferWith(t, "", append(base[:len(base):len(base)], c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) || strings.Count(strings.TrimSpace(errs), "\n") > 0 {
			t.Errorf("%v: %d %q", c.args, code, errs)
		}
	}
	if code, _, errs := inferWith(t, "", "eval", "-m", tinyModel, "--suite", "longbench", "--placement", "none", "--out", t.TempDir()); code != exitUsage || !strings.Contains(errs, "--placement") {
		t.Errorf("another suite: %d %s", code, errs)
	}
}

func TestStoreProfile(t *testing.T) {
	_, contexts := contextData(t)
	code, out, errs := inferWith(t, "", "store", "profile", "-m", tinyModel, "-t", "1", "--contexts", contexts, "--quality", "token-f1", "--methods", "knorm", "--keeps", "0.5,0.25", "--max-tokens", "3", "--json",
		"--store", "ssd="+filepath.Join(t.TempDir(), "kv")+",64MiB")
	var p struct {
		Contexts []struct{ Quality map[string]map[string]float64 }
	}
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != 0 || len(p.Contexts) != 2 || len(p.Contexts[0].Quality["knorm"]) != 2 {
		t.Errorf("%d %s %s %v", code, out, errs, err)
	}
	if code, _, errs := inferWith(t, "", "store", "profile", "-m", tinyModel, "--contexts", contexts, "--methods", "h2o"); code != exitUsage || !strings.Contains(errs, "h2o") {
		t.Errorf("%d %s", code, errs)
	}
}

// TestGenerateModelledTimes: times of a prompt that came from a store are modelled where a tier's reads are held to a rate.
func TestGenerateModelledTimes(t *testing.T) {
	dir := t.TempDir()
	text := strings.Repeat("ab c ", 24)
	for i, c := range []struct {
		rate   string
		cached bool
		source string
	}{{",9MiB/s", false, ""}, {"", true, ""}, {",9MiB/s", true, "modelled"}} {
		code, out, errs := inferWith(t, "", "generate", "-m", tinyModel, "-t", "1", "--raw", "--prompt", text, "--max-tokens", "2", "--json", "--store", "ssd="+dir+",64MiB"+c.rate)
		var j struct {
			CachedTokens int `json:"cached_tokens"`
			Timings      struct{ Source string }
		}
		if err := json.Unmarshal([]byte(out), &j); err != nil || code != 0 || (j.CachedTokens > 0) != c.cached || j.Timings.Source != c.source {
			t.Errorf("run %d: %d %s %s %v", i, code, out, errs, err)
		}
	}
}

// TestTiersAndStores: --tier and --store in one command; a tier that keeps prompts is a store wherever it is named.
func TestTiersAndStores(t *testing.T) {
	dir := t.TempDir()
	text := strings.Repeat("ab c ", 24)
	for i, more := range []string{"", ",direct=no", ""} {
		args := []string{"generate", "-m", tinyModel, "-t", "1", "--raw", "--prompt", text, "--max-tokens", "2", "--json",
			"--tier", "host=8MiB", "--store", "ssd=" + dir + ",64MiB" + more, "--tier", "valkey=127.0.0.1:1,1MiB"}
		if i == 2 {
			args = append(args, "--tier", "ssd="+filepath.Join(t.TempDir(), "kv")+",64MiB")
		}
		code, out, errs := inferWith(t, "", args...)
		var j struct {
			CachedTokens int `json:"cached_tokens"`
		}
		if err := json.Unmarshal([]byte(out), &j); err != nil || code != 0 || (j.CachedTokens > 0) != (i > 0) {
			t.Errorf("run %d: %d %s %s %v", i, code, out, errs, err)
		}
		if !strings.Contains(errs, "valkey=127.0.0.1:1") || strings.Contains(errs, "ssd=") {
			t.Errorf("run %d: %s", i, errs)
		}
	}
}

// TestPromptsOfTiers: a part of a host and of an ssd tier keeps prompts; a new process finds them, and a command that keeps none says so.
func TestPromptsOfTiers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	tiers := []string{"--tier", "host=12MiB,prompts=4MiB", "--tier", "ssd=" + dir + ",64MiB,prompts=16MiB"}
	for i, cached := range []bool{false, true} {
		code, out, errs := inferWith(t, "", append([]string{"generate", "-m", tinyModel, "-t", "1", "--raw", "--prompt", strings.Repeat("ab c ", 24), "--max-tokens", "2", "--json"}, tiers...)...)
		var j struct {
			CachedTokens int `json:"cached_tokens"`
			KV           struct {
				BytesPeak map[string]int64 `json:"bytes_peak"`
			} `json:"kv"`
		}
		if err := json.Unmarshal([]byte(out), &j); err != nil || code != 0 || errs != "" || (j.CachedTokens > 0) != cached || len(j.KV.BytesPeak) != 2 {
			t.Errorf("run %d: %d %s %s %v", i, code, out, errs, err)
		}
	}
	if code, out, errs := inferWith(t, "", "store", "stats", "--store", "ssd="+filepath.Join(dir, "prompts")+",16MiB"); code != 0 || !strings.Contains(out, "of 16MiB in 1 record") {
		t.Errorf("what the folder keeps: %d %s %s", code, out, errs)
	}
	if code, _, errs := inferWith(t, "", append([]string{"bench", "-m", tinyModel}, tiers...)...); code != exitUsage || !strings.Contains(errs, "prompts are not kept here") {
		t.Errorf("bench: %d %s", code, errs)
	}
}
