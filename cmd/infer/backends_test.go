package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// synthModel writes a small random model.
func synthModel(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if code, _, errs := runCommand("synth", path, "--layers", "2", "--hidden", "64", "--heads", "2", "--vocab", "300", "--type", "F32"); code != exitDone {
		t.Fatalf("synth: exit %d, %s", code, errs)
	}
	return path
}

// TestBackendExitCodes: a backend that is not known, not built in, or cannot do what is asked ends the command with one line;
// none is taken in its place.
func TestBackendExitCodes(t *testing.T) {
	path := synthModel(t)
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"--backend abacus", exitUsage, "native"},
		{"--backend native,abacus", exitUsage, "abacus"},
		{"--backend tpu:7", exitUsage, "gomlx:go"},
		{"--backend native --dtype bf16", exitUsage, "bf16"},
		{"--backend gorgonia --dtype bf16", exitUsage, "bf16"},
		{"--backend gomlx:go --dtype bf16 --exact", exitUsage, "exact"},
		{"--backend gomlx:go --dtype f8", exitUsage, "f32 or bf16"},
		{"--backend native --tier device=1MiB", exitUsage, "device"},
		{"--backend gomlx:go --tier device=1KiB", exitMemory, "1024"},
		{"--page-tokens 8", exitUsage, "multiple of 16"},
		{"--gpu-layers nine", exitUsage, "all, auto or a number"},
		{"--gpu-layers all,cpu-moe", exitUsage, "all, auto or a number"},
		{"--n-cpu-moe -1", exitUsage, "number of layers"},
	} {
		args := append([]string{"bench", "-m", path, "-p", "4", "-n", "1", "-r", "1"}, strings.Fields(tc.args)...)
		if code, out, errs := runCommand(args...); code != tc.code || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit %d, want %d and %q in one line: %q %q", tc.args, code, tc.code, tc.want, errs, out)
		}
	}
	for _, command := range []string{"generate", "logits", "perplexity"} {
		if code, _, errs := runCommand(command, "-m", path, "--backend", "abacus"); code != exitUsage || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s with an unknown backend: exit %d: %q", command, code, errs)
		}
	}
}

// TestBenchBackends: one run measures several backends, and each row says whose it is and what its device did.
func TestBenchBackends(t *testing.T) {
	code, out, errs := runCommand("bench", "-m", synthModel(t), "-p", "4", "-n", "2", "-r", "1", "--backend", "native,gomlx:go", "--backend", "gorgonia", "-o", "json")
	var rows []benchRow
	if err := json.Unmarshal([]byte(out), &rows); code != exitDone || err != nil || len(rows) != 6 {
		t.Fatalf("exit %d, %v: %q %q", code, err, out, errs)
	}
	for i, want := range []string{"native", "gomlx:go", "gorgonia", "native", "gomlx:go", "gorgonia"} {
		r := rows[i]
		if r.Backend != want || r.TPSMedian <= 0 {
			t.Errorf("row %d: %+v, want backend %s", i, r, want)
		}
		if d := r.Device; (d != nil) != (want == "gomlx:go") {
			t.Errorf("row %d of %s: device %+v", i, want, d)
		} else if d != nil && (d.ComputeMS <= 0 || d.UpMS <= 0 || d.DownMS <= 0 || r.KV.BytesMoved["host>device"] <= 0 || r.KV.BytesMoved["device>host"] <= 0 || r.KV.BytesPeak["device"] <= 0) {
			t.Errorf("row %d: device %+v, KV %+v", i, d, r.KV)
		}
	}
}

// TestTraceNamesTheBackend reads a timeline: every call of the model says which backend ran it, and the device's computing
// and both directions of transfers, with bytes, are rows of their own.
func TestTraceNamesTheBackend(t *testing.T) {
	for _, backend := range []string{"native", "gorgonia", "gomlx:go"} {
		file := filepath.Join(t.TempDir(), "t.json")
		if code, _, errs := runCommand("generate", "-m", synthModel(t), "--backend", backend, "-n", "3", "--temp", "0", "--ignore-eos", "--raw", "--trace", file, "abc"); code != exitDone {
			t.Fatalf("exit %d, %s", code, errs)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var tl struct {
			TraceEvents []struct {
				Ph, Name string
				Tid      int
				Args     map[string]any
			}
		}
		if err := json.Unmarshal(data, &tl); err != nil {
			t.Fatal(err)
		}
		row, spans, bytes := map[int]string{}, map[string]int{}, map[string]float64{}
		for _, e := range tl.TraceEvents {
			if name, ok := e.Args["name"].(string); e.Ph == "M" && ok && e.Name == "thread_name" {
				row[e.Tid] = name
			}
			if e.Ph != "X" {
				continue
			}
			name := row[e.Tid]
			spans[name]++
			if n, ok := e.Args["bytes"].(float64); ok {
				bytes[name] += n
			}
			if (name == "compute" || strings.Contains(name, "device")) && e.Args["backend"] != backend {
				t.Errorf("%s: %q on row %q names backend %v", backend, e.Name, name, e.Args["backend"])
			}
		}
		if spans["compute"] < 3*2*3 {
			t.Errorf("%s: %d calls", backend, spans["compute"])
		}
		device := backend == "gomlx:go"
		for _, name := range []string{"transfer host>device", "transfer device>host"} {
			if (bytes[name] > 0) != device || (spans[name] > 0) != device {
				t.Errorf("%s: %d spans, %g bytes on row %q", backend, spans[name], bytes[name], name)
			}
		}
		if (spans["device compute"] > 0) != device {
			t.Errorf("%s: %d programs on the device's row", backend, spans["device compute"])
		}
	}
}
