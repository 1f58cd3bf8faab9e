package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run on a tiny model becomes a page and a CSV file beside it; what makes none is one line, and leaves no file.
func TestLeaderboardCommand(t *testing.T) {
	dir := t.TempDir()
	out, page := filepath.Join(dir, "run"), filepath.Join(dir, "board.html")
	code, _, errs := inferWith(t, "", "eval", "-m", tinyModel, "--suite", "longbench", "--tasks", "lcc", "--data", evalData(t), "--max-context", "30", "--out", out, "-t", "1",
		"--policy", "full", "--policy", "knorm:budget=10%", "--policy", "knorm:budget=75%")
	if code != 0 {
		t.Fatalf("eval: exit %d %s", code, errs)
	}
	code, stdout, errs := inferWith(t, "", "compare", out, "--leaderboard", page, "--equal-bytes", "50%,held=60%", "--title", "T")
	if code != 0 || !strings.Contains(stdout, "longbench: ") || strings.Count(errs, "written: ") != 2 {
		t.Fatalf("exit %d\n%s%s", code, stdout, errs)
	}
	text, err := os.ReadFile(page)
	if err != nil || !bytes.Contains(text, []byte("<button type=\"button\">50 % read</button></th><th><button type=\"button\">60 % held</button>")) || !bytes.Contains(text, []byte("<h1>T</h1>")) {
		t.Errorf("%v\n%s", err, text)
	}
	table, err := os.ReadFile(filepath.Join(dir, "board.csv"))
	if err != nil || strings.Count(string(table), "\n") != 1+1+2 || !strings.Contains(string(table), "knorm,read a step,0.5,") || !strings.Contains(string(table), "knorm,held,0.6,") {
		t.Errorf("%v\n%s", err, table)
	}
	for want, args := range map[string][]string{
		"is there twice":    {"compare", out, out, "--leaderboard", filepath.Join(dir, "none.html")},
		"name the page":     {"compare", out, "--leaderboard", filepath.Join(dir, "none.csv")},
		"share of KV bytes": {"compare", out, "--leaderboard", filepath.Join(dir, "none.html"), "--equal-bytes", "10%,much"},
		"\"10%,25%\": want": {"compare", out, "--equal-bytes", "10%,25%"},
		"no run has policy \"oracle\" to compare with (tiny.gguf)": {"compare", out, "--leaderboard", filepath.Join(dir, "none.html"), "--against", "oracle"},
	} {
		if code, _, errs := inferWith(t, "", args...); code != exitUsage || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d %s", want, code, errs)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "none*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}
