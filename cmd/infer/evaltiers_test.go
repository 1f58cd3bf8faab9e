package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"terrace/csdshim"
	"terrace/csdshim/attend"
	"terrace/csdshim/profiles"
	"terrace/internal/golden"
)

// tierPolicies are of each way to use the tiers: everything is read, some of it, some is dropped, and groups or single tokens move.
var tierPolicies = []string{"full", "quest:budget=0.3", "hillinfer:alpha=0.3", "snapkv:budget=0.5,window=8", "pqcache:budget=0.3"}

// tierModel is a random model whose KV of the samples below is larger than the host tier, and the samples' folder.
func tierModel(t *testing.T) (model, data string) {
	t.Helper()
	dir := t.TempDir()
	model = filepath.Join(dir, "m.gguf")
	if code, _, errs := inferWith(t, "", "synth", model, "--arch", "llama", "--layers", "16", "--hidden", "64", "--heads", "4", "--kv-heads", "2", "--context", "1024", "--vocab", "300"); code != 0 {
		t.Fatal(errs)
	}
	row := fmt.Sprintf(`{"input":"q","context":%q,"answers":["a"],"length":3,"dataset":"lcc","all_classes":null,"_id":"1"}`, strings.Repeat("The hare and the tortoise. ", 11)) + "\n"
	text := strings.Repeat("A line that tells of nothing in particular, but at length.\n", 16)
	question := `{"id":"1","question_stem":"Which is larger than a mouse and smaller than a house","choices":{"text":["a horse","a town"],"label":["A","B"]},"answerKey":"A"}` + "\n"
	for name, content := range map[string]string{"lcc.jsonl": row, "dataset2prompt.json": `{"lcc":"{context}{input}"}`, "wikitext-2/test.txt": text, "openbookqa.jsonl": question} {
		file := filepath.Join(dir, "data", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return model, filepath.Join(dir, "data")
}

// tierDrive serves a drive until the test ends and returns its socket.
func tierDrive(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "drive") // t.TempDir may be longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	profile, err := profiles.Load("unlimited")
	if err != nil {
		t.Fatal(err)
	}
	drive, err := csdshim.OpenDrive(filepath.Join(dir, "d"), csdshim.Options{Profile: profile, CapacityBytes: 32 << 20, NoSync: true, Attention: attend.New()})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := csdshim.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- drive.Serve(ctx, l, csdshim.ServerOptions{}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		drive.Close()
	})
	return socket
}

// tierSample is what a run says of a sample.
type tierSample struct {
	Task, ID, Policy, Pred, Error string
	Score                         *float64
	Values, Row                   map[string]any
	Kept                          float64          `json:"tokens_kept"`
	Peak                          map[string]int64 `json:"kv_bytes_peak"`
	Held                          map[string]int64 `json:"kv_bytes_held"`
}

// tierRun runs a suite under policies and returns its samples.
func tierRun(t *testing.T, args, policies, tiers []string) []tierSample {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run")
	args = append(args, "--out", out, "-t", "1", "-q")
	for _, p := range policies {
		args = append(args, "--policy", p)
	}
	for _, tier := range tiers {
		args = append(args, "--tier", tier)
	}
	if code, _, errs := inferWith(t, "", args...); code != 0 {
		t.Fatalf("%v: exit %d: %s", tiers, code, errs)
	}
	raw, err := os.ReadFile(filepath.Join(out, "samples.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var list []tierSample
	for line := range bytes.Lines(raw) {
		var s tierSample
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// TestEvalSuitesOnTiers: every suite under every policy, together and alone, gives on each set of tiers what it gives in memory; no sample
// takes more of a tier than there is, and each says what it took of which.
func TestEvalSuitesOnTiers(t *testing.T) {
	model, data := tierModel(t)
	socket := tierDrive(t)
	const wide, tight = 4 << 20, 640 << 10
	for suite, args := range map[string][]string{
		"longbench":  {"--data", data, "--tasks", "lcc"},
		"perplexity": {"--data", data, "--tasks", "wikitext-2", "--chunk", "120", "--limit", "1"},
		"choice":     {"--data", data, "--tasks", "openbookqa"},
		"agreement":  {"--data", data, "--prompts", "longbench", "--tasks", "lcc", "--tokens", "8"},
	} {
		if suite != "agreement" && (testing.Short() || suite != "choice" && !golden.Thorough()) {
			continue
		}
		t.Run(suite, func(t *testing.T) {
			args = append([]string{"eval", "-m", model, "--suite", suite}, args...)
			long := suite == "longbench" || suite == "agreement" // samples that do not fit host memory
			sets := [][]string{tierPolicies}
			if long {
				sets = append(sets, tierPolicies[2:3]) // agreement reads them under full, too
			}
			check := func(what string, got, want []tierSample, host int64, lower string) {
				t.Helper()
				for _, g := range got {
					var w tierSample
					for _, x := range want {
						if x.Task == g.Task && x.ID == g.ID && x.Policy == g.Policy {
							w = x
						}
					}
					if lower != "" { // what lies below is scanned in other pieces, or by the drive itself
						delete(g.Values, "bytes_share")
						delete(g.Values, "scan_mib_per_token")
						w.Values = maps.Clone(w.Values)
						delete(w.Values, "bytes_share")
						delete(w.Values, "scan_mib_per_token")
					}
					if g.Error != "" || g.Pred != w.Pred || g.Kept != w.Kept || !reflect.DeepEqual(g.Score, w.Score) || !reflect.DeepEqual(g.Values, w.Values) || !reflect.DeepEqual(g.Row, w.Row) {
						t.Errorf("%s, %s: %+v, in memory %+v", what, g.Policy, g, w)
					}
					if g.Peak["host"] <= 0 || g.Peak["host"] > host || g.Held["host"] > g.Peak["host"] || g.Held["host"] <= 0 {
						t.Errorf("%s, %s: host memory %v, %v held, of %d", what, g.Policy, g.Peak, g.Held, host)
					}
					below, named := g.Peak[lower]
					if lower != "" && (!named || long && below <= 0 || g.Held[lower] > below) {
						t.Errorf("%s, %s: tier %s: %v, %v held", what, g.Policy, lower, g.Peak, g.Held)
					}
				}
			}
			for _, policies := range sets {
				want := tierRun(t, args, policies, nil)
				for _, tiers := range []struct {
					set   []string
					lower string
					host  int64
				}{{[]string{"host=4MiB"}, "", wide}, {[]string{"host=640KiB", "ssd=" + t.TempDir() + ",16MiB"}, "ssd", tight}, {[]string{"host=640KiB", "csd=unix:" + socket}, "csd", tight}} {
					got := tierRun(t, args, policies, tiers.set)
					if len(got) != len(want) || len(got) < len(policies) {
						t.Errorf("%v under %v: %d samples, in memory %d", tiers.set, policies, len(got), len(want))
					}
					check(strings.Join(tiers.set, " "), got, want, tiers.host, tiers.lower)
				}
			}
		})
	}
}
