package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"terrace/internal/clock"
)

// predictedArgs are those of a small model's prediction, and rows what it prints.
func predictedArgs(t *testing.T) (args []string, rows func(more ...string) []predictedRow) {
	t.Helper()
	if testing.Short() {
		t.Skip("measures the host")
	}
	host, disk := hostEach, diskEach
	hostEach, diskEach, hostBytes = 2*time.Millisecond, 4*time.Millisecond, 3<<20
	t.Cleanup(func() { hostEach, diskEach, hostBytes = host, disk, 0 })
	dir := t.TempDir()
	text, small := filepath.Join(dir, "text"), filepath.Join(dir, "small.gguf")
	if err := os.WriteFile(text, []byte("the quick brown fox jumps over the lazy dog and back again"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := inferWith(t, "", "synth", small, "--layers", "6", "--hidden", "64", "--heads", "4", "--kv-heads", "2", "--head-dim", "32", "--vocab", "300", "--type", "F32"); code != 0 {
		t.Fatal(stderr)
	}
	args = []string{"bench", "--predict", "-m", small, "-n", "3", "-r", "1", "-t", "1", "--continue", "--file", text, "-o", "json"}
	return args, func(more ...string) (list []predictedRow) {
		t.Helper()
		code, stdout, stderr := inferWith(t, "", append(args, more...)...)
		if err := json.Unmarshal([]byte(stdout), &list); code != 0 || err != nil {
			t.Fatalf("exit %d, %v: %s", code, err, stderr)
		}
		return list
	}
}

// TestBenchPredict: a case on an SSD is measured and worked out, a fit to its recording is a hardware file, and that predicts another depth,
// measuring nothing and the same twice.
func TestBenchPredict(t *testing.T) {
	args, rows := predictedArgs(t)
	dir := t.TempDir()
	trace, hardware, on := filepath.Join(dir, "trace"), filepath.Join(dir, "hardware"), fmt.Sprintf("full on host=1200KiB ssd=%s/kv,16MiB", dir)
	measured := rows("-d", "1000", "--record-trace", trace, "--case", on)
	if r := measured[0]; len(measured) != 1 || r.MeasuredMS <= 0 || r.PredictedMS <= 0 || r.PredictedFrom != "modelled" || r.MeasuredFrom != "measured" || r.MeasuredKV.Reads == 0 || r.Depth != 1000 {
		t.Errorf("%+v", measured)
	} else if got, want := r.PredictedKV.BytesToken, r.MeasuredKV.BytesToken; got < 0.9*want || got > 1.1*want {
		t.Errorf("by the model a token moves %.0f bytes, really %.0f", got, want)
	}
	code, table, stderr := inferWith(t, "", "simulate", "--fit", trace)
	if code != 0 || !strings.Contains(table, "handing over") || !strings.Contains(table, "latency") {
		t.Errorf("exit %d: %s%s", code, table, stderr)
	}
	code, fitted, stderr := inferWith(t, "", "simulate", "--fit", trace, "--json")
	if code != 0 {
		t.Fatal(stderr)
	}
	if err := os.WriteFile(hardware, []byte(fitted), 0o600); err != nil {
		t.Fatal(err)
	}
	other := []string{"-d", "1200", "--hardware", hardware, "--case", on}
	first, again := rows(other...), rows(other...)
	if len(first) != 1 || first[0].PredictedMS <= 0 || first[0].MeasuredMS != 0 || first[0].PredictedMS != again[0].PredictedMS {
		t.Errorf("%+v, then %+v", first, again)
	}
	for name, x := range map[string]struct {
		code int
		args []string
	}{
		"both ways":      {2, append(args, append(other, "--record-trace", trace)...)},
		"not that one":   {2, append(args, "-d", "1000", "--hardware", hardware, "--case", "quest on "+strings.TrimPrefix(on, "full on "))},
		"no such tier":   {2, append(args, "-d", "1000", "--hardware", hardware, "--case", "full on csd=unix:"+filepath.Join(dir, "s"))},
		"no hardware":    {2, append(args, "-d", "1000", "--hardware", trace, "--case", on)},
		"no file":        {1, append(args, "-d", "1000", "--hardware", filepath.Join(dir, "none"), "--case", on)},
		"in memory":      {2, append(args, "-d", "1000", "--case", "full")},
		"a device":       {2, append(args, "-d", "1000", "--case", "full on device=1MiB host=1MiB")},
		"no recording":   {1, []string{"simulate", "--fit", hardware}},
		"a fit of an id": {2, []string{"simulate", "--fit", trace, "hillinfer-fig14"}},
	} {
		if code, _, stderr := inferWith(t, "", x.args...); code != x.code || strings.Count(stderr, "\n") < 1 {
			t.Errorf("%s: exit %d, want %d: %s", name, code, x.code, stderr)
		}
	}
}

// TestBenchPredictFails: a run that fails ends with its reason, in one line.
func TestBenchPredictFails(t *testing.T) {
	_, _ = predictedArgs(t) // which measures this host for a moment alone
	dir := t.TempDir()
	for on, c := range map[string]struct {
		code int
		want string
		args []string
	}{
		"full on host=1MiB ssd=" + dir + ",8MiB":                          {exitMemory, "the context holds 16", []string{"-c", "16"}},
		"full on host=1KiB ssd=" + dir + ",8MiB":                          {exitMemory, "host memory", nil},
		"full on host=1MiB ssd=" + filepath.Join(dir, "a", "b") + ",8MiB": {exitUsage, "make it first", nil},
		"quest:budget=0 on host=1MiB ssd=" + dir + ",8MiB":                {exitUsage, "budget", nil},
	} {
		args := append([]string{"bench", "--predict", "--continue", "-m", tinyModel, "-p", "0", "-n", "2", "-d", "64", "-r", "1", "-t", "1", "--case", on}, c.args...)
		if code, _, errs := inferWith(t, "", args...); code != c.code || !strings.Contains(errs, c.want) || strings.Contains(errs, "internal") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, want %d and %q in one line: %q", on, code, c.code, c.want, errs)
		}
	}
}

// TestBenchPredictDrives: cases on a drive that attends and on one that stores are measured and worked out.
func TestBenchPredictDrives(t *testing.T) {
	args, rows := predictedArgs(t)
	socket := serveDrive(t, "instcsd", clock.Real())
	attends, stores := "sparf:ratio=0.125 on csd=unix:"+socket, "full on host=1200KiB csd=unix:"+socket
	list := rows("-d", "1000", "--case", attends, "--case", stores)
	for _, r := range list {
		if r.MeasuredMS <= 0 || r.PredictedMS <= 0 || r.Host.Drive == nil || r.Host.Drive.Message <= 0 || r.Host.Storage != nil {
			t.Errorf("%+v", r)
		}
		if got, want := r.PredictedKV.BytesToken, r.MeasuredKV.BytesToken; got < 0.9*want || got > 1.1*want {
			t.Errorf("%s: by the model a token moves %.0f bytes, really %.0f", r.Policy, got, want)
		}
	}
	both := rows("-d", "1000", "--case", "full on host=1200KiB ssd="+t.TempDir()+",600KiB csd=unix:"+socket)
	if r := both[0]; r.Ratio <= 0 || r.Host.Storage == nil || r.Host.Device == nil || r.Host.Drive == nil || r.Host.Drive.Fetch+r.Host.Drive.FetchByte <= 0 {
		t.Errorf("an SSD above a drive: %+v", r)
	}
	// At the profile's rate no more than its link carries; what was learnt of the process is left out.
	for _, r := range list {
		if link := 1e3 * r.PredictedKV.BytesToken / 3.94e9; r.ProfileMS < link || r.ProfileMS == r.PredictedMS || r.ProfileIn == nil || r.ProfileTimes != list[0].ProfileMS/r.ProfileMS {
			t.Errorf("%s at its profile: %.3f ms, %.3f of the link, %.2f times the first: %+v", r.Policy, r.ProfileMS, link, r.ProfileTimes, r.ProfileIn)
		}
	}
	// At the profile alone nothing is learnt of the process, and the same comes out but for this host's steps.
	alone := rows("-d", "1000", "--at-profile", "--case", stores)
	if r := alone[0]; len(alone) != 1 || r.MeasuredMS != 0 || r.PredictedMS != 0 || r.PredictedKV != nil || r.MemoryMS <= 0 || r.Host.Drive.Message != 0 || r.Host.Drive.Fetch != 0 {
		t.Errorf("at its profile alone: %+v", r)
	} else if want := list[1].ProfileKV; r.ProfileKV.BytesToken != want.BytesToken || r.ProfileMS < 1e3*want.BytesToken/3.94e9 {
		t.Errorf("at its profile alone: %.3f ms, %.0f bytes a token, want %.0f", r.ProfileMS, r.ProfileKV.BytesToken, want.BytesToken)
	}
	if code, _, stderr := inferWith(t, "", append(args, "-d", "1000", "--at-profile", "--record-trace", filepath.Join(t.TempDir(), "trace"), "--case", stores)...); code != 2 {
		t.Errorf("--at-profile that records: exit %d: %s", code, stderr)
	}
	if len(list) != 2 || list[0].Host.Drive.Attend+list[0].Host.Drive.AttendToken <= 0 || list[1].Host.Drive.Fetch+list[1].Host.Drive.FetchByte <= 0 {
		t.Errorf("%+v", list)
	}
}
