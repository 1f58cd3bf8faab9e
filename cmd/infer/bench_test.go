package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/csdshim"
	"terrace/csdshim/attend"
	"terrace/csdshim/profiles"
	"terrace/internal/clock"
	"terrace/offload"
)

// TestBenchCases: cases on tiers beside one without, in turn, with the tiers' accounts in their rows.
func TestBenchCases(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("the quick brown fox jumps over the lazy dog and back again"), 0o600); err != nil {
		t.Fatal(err)
	}
	small := filepath.Join(dir, "small.gguf")
	if code, _, stderr := inferWith(t, "", "synth", small, "--layers", "6", "--hidden", "64", "--heads", "4", "--kv-heads", "2", "--head-dim", "32", "--vocab", "300", "--type", "F32"); code != 0 {
		t.Fatal(stderr)
	}
	const tiers = "host=1200KiB ssd=%s/kv,16MiB" // 256 KiB or more for the store itself, the rest of 63 blocks of 4 KiB in each of 6 layers
	args := []string{"bench", "-m", small, "-p", "0", "-n", "3", "-d", "1000", "-r", "2", "-t", "1", "--continue", "--file", text, "-o", "json",
		"--case", "full", "--case", "full on " + fmt.Sprintf(tiers, dir), "--case", "quest:budget=32 on " + fmt.Sprintf(tiers, dir)}
	code, stdout, stderr := inferWith(t, "", args...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var rows []benchRow
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || len(rows) != 3 {
		t.Fatalf("%v, rows %s", err, stdout)
	}
	if r := rows[0]; r.Ratio != 1 || len(r.TPSAll) != 2 || r.KV.Reads != 0 || r.KV.HitRate != nil || len(r.Tiers) != 0 {
		t.Errorf("without tiers: %+v", r)
	}
	for _, r := range rows[1:] {
		if r.Test != "tg3 @ d1000" || !(r.Ratio > 0) || r.KV.HitRate == nil || *r.KV.HitRate >= 1 || r.KV.Reads == 0 || len(r.Tiers) != 2 {
			t.Errorf("row %+v", r)
		}
		if got := r.KV.BytesToken * 6; int64(got+0.5) != r.KV.BytesMoved["ssd>host"] || got == 0 {
			t.Errorf("%s: %.0f bytes read by 6 tokens, moved %v", r.Policy, got, r.KV.BytesMoved)
		}
		if r.KV.BytesPeak["host"] > 1200<<10 {
			t.Errorf("%s: host peak %d", r.Policy, r.KV.BytesPeak["host"])
		}
	}
	if full, quest := rows[1].KV.BytesToken, rows[2].KV.BytesToken; full <= quest {
		t.Errorf("bytes a token: streamed %.0f, selected %.0f", full, quest)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "kv")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	for name, more := range map[string][]string{"policy too": {"--case", "full", "--policy", "h2o"}, "bad tier": {"--case", "full on ssd=x"}, "bad policy": {"--case", "nope"}} {
		if code, _, stderr := inferWith(t, "", append([]string{"bench", "-m", tinyModel}, more...)...); code != 2 {
			t.Errorf("%s: exit %d, %s", name, code, stderr)
		}
	}
}

// lines notes what is written, in the order in which it is, each with the name of its stream.
type lines struct {
	stream string
	all    *[]string
}

func (l lines) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		if n := len(*l.all); n > 0 && !strings.HasSuffix((*l.all)[n-1], "\n") {
			(*l.all)[n-1] += line
		} else {
			*l.all = append(*l.all, l.stream+line)
		}
	}
	return len(b), nil
}

// TestBenchPrintsAsItGoes: a repeat of a case is a line on stderr when it is done, and a row follows the last of its case at once where
// the format permits; --quiet leaves the rows.
func TestBenchPrintsAsItGoes(t *testing.T) {
	model := synthModel(t)
	for format, want := range map[string]string{
		"md": "2tg 2tg 2tg 1|.model 1|.--- 1|./ 2tg 1|./", "csv": "2tg 2tg 2tg 1model, 1/ 2tg 1/", "jsonl": "2tg 2tg 2tg 1{ 2tg 1{",
		"json": "2tg 2tg 2tg 2tg 1[", "table": "2tg 2tg 2tg 2tg 1 1 1",
	} {
		for _, quiet := range []bool{false, true} {
			args, expect := []string{"bench", "-m", model, "-p", "0", "-n", "2", "-d", "8", "-r", "2", "-t", "1", "-o", format, "--policy", "full", "--policy", "streaming_llm:budget=8"}, strings.Fields(want)
			if quiet {
				args, expect = append(args, "--quiet"), slices.DeleteFunc(expect, func(s string) bool { return s[0] == '2' })
			}
			var got []string
			if code := run(args, strings.NewReader(""), lines{"1", &got}, lines{"2", &got}); code != 0 {
				t.Fatalf("%s: exit %d: %q", format, code, got)
			}
			for i, line := range got {
				prefix := expect[min(i, len(expect)-1)]
				if len(got) != len(expect) || !strings.HasPrefix(strings.ReplaceAll(strings.Replace(line, "2infer: ", "2", 1), "| ", "|."), prefix) {
					t.Fatalf("%s, quiet %v: line %d begins otherwise than %q of %q:\n%s", format, quiet, i, prefix, expect, strings.Join(got, ""))
				}
			}
			if !quiet && !(strings.Contains(got[0], "round 1 of 2") && strings.Contains(got[0], "with full") && strings.Contains(got[1], "with streaming_llm:budget=8")) {
				t.Errorf("%s: %q", format, got[:2])
			}
		}
	}
}

// TestBenchNamesModelledTimes: rows on a drive that waits as a profile says are modelled; on one without limits, or whose clock
// is virtual and waits for nothing, they are measured, as all others.
func TestBenchNamesModelledTimes(t *testing.T) {
	dir := t.TempDir()
	small := filepath.Join(dir, "small.gguf")
	if code, _, stderr := inferWith(t, "", "synth", small, "--layers", "2", "--hidden", "64", "--heads", "4", "--kv-heads", "2", "--head-dim", "32", "--vocab", "300", "--type", "F32"); code != 0 {
		t.Fatal(stderr)
	}
	args := []string{"bench", "-m", small, "-p", "0", "-n", "1", "-d", "100", "-r", "1", "-t", "1", "--continue", "-o", "json", "--case", "full"}
	want := []string{"measured"}
	for _, d := range []struct {
		profile, policy, want string
		clock                 clock.Clock
	}{
		{"smartssd", "full", "modelled", clock.Real()}, {"smartssd", "hillinfer:alpha=0.1", "modelled", clock.Real()}, {"unlimited", "full", "measured", clock.Real()},
		{"smartssd", "full", "measured", clock.NewVirtual()}, {"instcsd", "sparf", "modelled", clock.Real()}, {"unlimited", "sparf", "measured", clock.Real()},
	} {
		socket := serveDrive(t, d.profile, d.clock)
		tiers := "host=1MiB csd=unix:" + socket
		if d.policy == "sparf" {
			tiers = "csd=unix:" + socket
		}
		args, want = append(args, "--case", d.policy+" on "+tiers), append(want, d.want)
	}
	code, stdout, stderr := inferWith(t, "", args...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var rows []benchRow
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || len(rows) != len(want) {
		t.Fatalf("%v, rows %s", err, stdout)
	}
	for i, r := range rows {
		if r.Source != want[i] {
			t.Errorf("%s on %v: source %q, want %q", r.Policy, r.Tiers, r.Source, want[i])
		}
	}
}

// TestRatesAreMeasuredOnce: where a drive is and nobody has measured the host, it is measured when the tier is opened, once; the split is by
// these rates.
func TestRatesAreMeasuredOnce(t *testing.T) {
	dir := t.TempDir()
	small := filepath.Join(dir, "small.gguf")
	if code, _, stderr := inferWith(t, "", "synth", small, "--layers", "2", "--hidden", "64", "--heads", "4", "--kv-heads", "2", "--head-dim", "32", "--vocab", "300", "--type", "F32"); code != 0 {
		t.Fatal(stderr)
	}
	home, tiers := t.TempDir(), []string{"--tier", "host=1MiB", "--tier", "csd=unix:" + serveDrive(t, "smartssd", clock.Real())}
	for i, measures := range []bool{true, false} {
		args := append([]string{"generate", "--home", home, "-m", small, "--raw", "-n", "2", "-t", "1", "--ignore-eos", "--json", "--policy", "hillinfer:drive=true", strings.Repeat("a", 100)}, tiers...)
		code, stdout, stderr := inferWith(t, "", args...)
		if code != 0 || strings.Contains(stderr, "rates were measured") != measures {
			t.Errorf("run %d: exit %d, said %q", i, code, stderr)
		}
		if !strings.Contains(stdout, `"host_rates":"measured"`) {
			t.Errorf("run %d: %s", i, stdout)
		}
	}
	p, err := offload.LoadProfile(offload.ProfileFile(home))
	if err != nil || p.Host.ByShape["int8/2x32"] <= 0 || p.Host.Threads != 1 {
		t.Errorf("kept: %+v, %v", p.Host, err)
	}
}

// serveDrive serves a drive in this process.
func serveDrive(t *testing.T, profile string, c clock.Clock) (socket string) {
	t.Helper()
	sockets, err := os.MkdirTemp("", "drive") // t.TempDir may be longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	p, err := profiles.Load(profile)
	if err != nil {
		t.Fatal(err)
	}
	drive, err := csdshim.OpenDrive(t.TempDir(), csdshim.Options{Profile: p, CapacityBytes: 16 << 20, NoSync: true, Clock: c, Attention: attend.New()})
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(sockets, "s")
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
		os.RemoveAll(sockets)
	})
	return socket
}
