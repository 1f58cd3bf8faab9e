package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDidYouMean: what is misspelt is asked after, in one line and with the exit code of a usage error.
func TestDidYouMean(t *testing.T) {
	config := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte("temprature: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"genrate x":                 `unknown command "genrate", did you mean "generate"?`,
		"csd srve":                  `unknown command "srve", did you mean "serve"?`,
		"ps":                        "GET /api/ps",
		"serve --port 80":           "--addr HOST:PORT",
		"serve --addr 8080":         "want HOST:PORT",
		"generate --format x y":     "want json, or a JSON schema",
		"tokenize --count --ids":    "without --ids",
		"nonsense":                  `unknown command "nonsense": run`,
		"generate --temprature 1 x": "did you mean --temperature?",
		"generate --zzzz x":         "unknown flag: --zzzz (see 'infer generate --help')",
		"csd serve --zzzz":          "csd serve: unknown flag: --zzzz (see 'infer csd serve --help')",
		"store ls a b c":            "see 'infer store ls --help'",
		"compare a.csv":             "stands alone, for --frontier",
		"chat --polcy h2o":          "did you mean --policy?",
		"serve --placement lur":     `"lur", did you mean "lru"?`,
		"serve --placement impress": "want lru, evicpress, fixed or none",
		"serve --placement evicpress --deterministic":               "leave --deterministic out",
		"serve --placement evicpress:alpa=1":                        `did you mean "alpha"?`,
		"serve --placement evicpress:recency=0":                     "accesses",
		"serve --placement evicpress --store none":                  "needs a --store",
		"serve --placement evicpress --store valkey=h:1,1MiB":       "want host and ssd",
		"serve --placement evicpress --store-write back":            "says what lies where",
		"serve a b --placement evicpress":                           "2 are served",
		"serve --store host=8MiB --placement none":                  "leave --store out",
		"generate --config " + config + " x":                        `no flag is called "temprature", did you mean "temperature"?`,
		"generate -m " + tinyModel + " --policy snapvk x":           `"snapvk", did you mean "snapkv"?`,
		"generate -m " + tinyModel + " --policy h2o:bugdet=0.5 x":   `unknown parameter "bugdet", did you mean "budget"?`,
		"policies streaming_lm":                                     `did you mean "streaming_llm"?`,
		"generate --backend natve x":                                `did you mean "native"?`,
		"eval --suite longbnch --out r":                             `did you mean "longbench"?`,
		"eval --suite ruler --tasks niah_singel_1 --data . --out r": `did you mean "niah_single_1"?`,
		"help genrate":                 `unknown command "genrate", did you mean "generate"?`,
		"completion bahs":              `unknown command "bahs", did you mean "bash"?`,
		"quantize a b --type Q4_KM":    `did you mean "Q4_K"?`,
		"generate --kv-type in8 x":     `did you mean "int8"?`,
		"generate --tier sdd=d,1MiB x": `"sdd" is not known, did you mean "ssd"`,
		"generate --tier s3=u/b,1MiB,80/s --store device=1MiB x": "give it to --tier",
		"bench --tier host=1MiB --tier s3=u/b,1MiB":              "give it to a command with --store",
		"generate --store sdd=d,1MiB x":                          `"sdd" is not known, did you mean "ssd"`,
		"generate --weights host=8GiB,1MiB/s x":                  "want host=SIZE",
		"generate --store ssd=d x":                               "a place and a size, as in ssd=DIR,SIZE",
		"generate --speculate ngrm x":                            `did you mean "ngram"?`,
		"generate --speculate ngram --draft m.gguf x":            "leave one out",
		"bench -o jsn":         `did you mean "json"?`,
		"score --task hotpotq": `did you mean "hotpotqa"?`,
	} {
		code, _, errs := inferWith(t, "", strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, want %q", args, code, errs, want)
		}
	}
	t.Setenv("TERRACE_HOME", t.TempDir())
	if code, _, errs := inferWith(t, "", "generate", "-m", "smolm2", "x"); code != exitData || !strings.Contains(errs, `did you mean "smollm2"?`) {
		t.Errorf("a model: exit %d, %q", code, errs)
	}
}

// TestParentFolders: a folder is made, those above it are not.
func TestParentFolders(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "not", "there")
	for _, args := range [][]string{
		{"generate", "-m", tinyModel, "--raw", "--tier", "host=1MiB", "--tier", "ssd=" + gone + ",8MiB", "x"},
		{"profile", gone},
		{"bench", "-m", tinyModel, "-p", "8", "-n", "2", "-r", "1", "--case", "full on host=1MiB ssd=" + gone + ",8MiB"},
		{"csd", "serve", "--dir", gone, "--socket", filepath.Join(dir, "s")},
		{"csd", "serve", "--dir", filepath.Join(dir, "d"), "--socket", gone},
	} {
		code, _, errs := inferWith(t, "", args...)
		if code != exitUsage || !strings.Contains(errs, "no folder "+filepath.Join(dir, "not")) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d, %q", args, code, errs)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%v left %v", args, left)
		}
	}
	if code, _, errs := inferWith(t, "", "generate", "-m", tinyModel, "--raw", "-n", "2", "--tier", "host=1MiB", "--tier", "ssd="+filepath.Join(dir, "new")+",8MiB", "x"); code != 0 {
		t.Errorf("a new folder: exit %d, %q", code, errs)
	}
}
