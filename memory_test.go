package terrace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"terrace/engine"
	"terrace/internal/kernels/quant"
	"terrace/model"
	"terrace/serve/meter/prom"
	"terrace/weights/convert"
	"terrace/weights/stream"
)

// planned is a model's file and the engine's options for it.
func planned(t *testing.T, layers int) (*File, engine.Options) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	spec := convert.Spec{Arch: "llama", Layers: layers, Hidden: 512, HeadDim: 64, Vocab: 400, Context: 4096, Seed: 7}
	spec.SetDefaults()
	if err := convert.Synthesize(t.Context(), path, spec, convert.Options{Type: quant.Q8_0}); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	m, err := f.Model()
	if err != nil {
		t.Fatal(err)
	}
	o := engine.Options{}
	if err := o.Validate(m); err != nil {
		t.Fatal(err)
	}
	return f, o
}

// TestPlanMemory: from the least that the error names up to all, parts never exceed the memory, a step and a page of KV fit, and more
// memory never gives less to weights.
func TestPlanMemory(t *testing.T) {
	f, o := planned(t, 8)
	m, _ := f.Model()
	const used = 40 << 20
	if _, err := planMemory(m, o, used, used, 0); !errors.Is(err, stream.ErrBudget) || !strings.Contains(err.Error(), "at least") {
		t.Errorf("no memory at all: %v", err)
	}
	page, all := engine.KVBytes(m, o, 1), engine.KVBytes(m, o, o.Context)
	before, whole, fits := int64(0), false, 0
	for memory := int64(used); memory < used+256<<20; memory += 1 << 20 {
		p, err := planMemory(m, o, memory, used, 0)
		if err != nil {
			if fits > 0 {
				t.Fatalf("%d bytes do not fit, less did: %v", memory, err)
			}
			continue
		}
		fits++
		if p.UsedBytes+p.BuffersBytes+p.WeightsBytes+p.KVBytes > memory || p.WeightsBytes < p.LeastBytes || p.KVBytes < page || p.KVTokens < 1 {
			t.Fatalf("%d bytes: %+v", memory, p)
		}
		if p.WeightsBytes < before && !whole {
			t.Errorf("%d bytes: weights get %d, less memory gave %d", memory, p.WeightsBytes, before)
		}
		before = p.WeightsBytes
		if whole = p.StepBytes == 0; whole && p.WeightsBytes < p.TotalBytes || !whole && p.WeightsBytes > p.TotalBytes*3/2 || whole == strings.Contains(p.String(), "as it is needed") {
			t.Errorf("%d bytes: a step reads %d: %v", memory, p.StepBytes, p)
		}
	}
	if p, err := planMemory(m, o, 1<<30, used, 0); err != nil || p.KVBytes != all || p.WeightsBytes < p.TotalBytes || fits == 0 {
		t.Errorf("enough memory: %+v, %v", p, err)
	}
}

// TestOptionsWeights: a model opened with less memory than its weights gives the same text, and its server says what was read.
func TestOptionsWeights(t *testing.T) {
	f, _ := planned(t, 8)
	m, _ := f.Model()
	plan, err := m.StreamPlan()
	if err != nil {
		t.Fatal(err)
	}
	answer := func(o Options) (string, *Model) {
		o.Context, o.Batch, o.Threads, o.Meter = 256, 2, 2, prom.New
		model, err := Open(t.Context(), f.Path(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = model.Close() })
		text, err := Text(model.Generate(t.Context(), "some words", Settings{MaxTokens: 12, IgnoreEnd: true}))
		if err != nil {
			t.Fatal(err)
		}
		return text, model
	}
	want, _ := answer(Options{})
	for _, o := range []Options{{Weights: fmt.Sprintf("host=%d", plan.LeastBytes()+1<<20)}, {Memory: "1GiB"}} {
		got, model := answer(o)
		if got != want {
			t.Errorf("%+v: text %q, want %q", o, got, want)
		}
		w := httptest.NewRecorder()
		model.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/metrics", nil))
		for _, name := range []string{"terrace_weights_bytes ", "terrace_weights_read_bytes_total ", "terrace_experts_used_total "} {
			if !strings.Contains(w.Body.String(), "\n"+name) {
				t.Errorf("%+v: metrics have no %s", o, name)
			}
		}
	}
	for _, o := range []Options{{Weights: "8GiB"}, {Memory: "none"}, {Weights: "host=1GiB", Memory: "1GiB"}, {Weights: "host=1GiB", Backend: "gorgonia"}, {ExpertBias: "experts=1"},
		{Memory: "1GiB", ExpertBias: "experts=1"}, {Weights: "host=1GiB", ExpertBias: "1"}} {
		if _, err := Open(t.Context(), f.Path(), o); !errors.Is(err, ErrOption) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []Options{{Memory: "1MiB"}, {Memory: "1GiB", MemoryBeside: 1 << 30}} {
		if _, err := Open(t.Context(), f.Path(), o); !errors.Is(err, ErrMemory) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestLargerThanFree: a model larger than the free memory runs within that and says so; where its weights cannot be bounded it runs as
// ever, and where not even a part fits the least is named.
func TestLargerThanFree(t *testing.T) {
	f, _ := planned(t, 20)
	defer func(before func() int64) { freeMemory = before }(freeMemory)
	run := func(free int64, o Options) (lines []string, streamed bool, err error) {
		freeMemory = func() int64 { return free }
		o.Context, o.Batch, o.Threads, o.Notice = 64, 1, 1, func(line string) { lines = append(lines, line) }
		model, err := Open(t.Context(), f.Path(), o)
		if err != nil {
			return lines, false, err
		}
		defer model.Close()
		_, err = Text(model.Generate(t.Context(), "some words", Settings{MaxTokens: 3, IgnoreEnd: true}))
		return lines, model.engine.WeightsUse() != nil, err
	}
	if lines, streamed, err := run(1<<40, Options{}); err != nil || streamed {
		t.Errorf("much is free: streamed %v, %v, %q", streamed, err, lines)
	}
	lines, streamed, err := run(f.Weights().SizeBytes()+10<<20, Options{})
	if text := strings.Join(lines, "; "); err != nil || !streamed || !strings.Contains(text, "is free") || !strings.Contains(text, "of weights, the rest is read") {
		t.Errorf("little more is free than the file has: streamed %v, %v, %q", streamed, err, lines)
	}
	lines, streamed, err = run(1<<20, Options{})
	if text := strings.Join(lines, "; "); err != nil || streamed || !strings.Contains(text, "at least") || !strings.Contains(text, "tried with all weights") {
		t.Errorf("1 MiB is free: streamed %v, %v, %q", streamed, err, lines)
	}
}

// TestExpertBiasOnce: engines on one file have one bias.
func TestExpertBiasOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	spec := convert.Spec{Arch: "gpt-oss", Layers: 2, Hidden: 128, HeadDim: 64, Heads: 2, KVHeads: 1, SpecExperts: convert.SpecExperts{Experts: 8, ExpertsUsed: 2}, Vocab: 300, Context: 256, Seed: 7}
	spec.SetDefaults()
	if err := convert.Synthesize(t.Context(), path, spec, convert.Options{Type: quant.Q8_0}); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		bias string
		want error
	}{{"margin=20%", nil}, {"margin=20%", nil}, {"margin=30%", ErrOption}, {"", ErrOption}} {
		e, err := f.Engine(t.Context(), Options{Weights: "host=1GiB", ExpertBias: c.bias})
		if !errors.Is(err, c.want) {
			t.Errorf("%q: %v, want %v", c.bias, err, c.want)
		}
		if err == nil {
			defer e.Close()
		}
	}
}

// TestWeightsBesideTier: weights that are read as they are needed, and KV on the same disk, take turns there; the text is that of the run
// in memory, and metrics say what each had.
func TestWeightsBesideTier(t *testing.T) {
	f, _ := planned(t, 8)
	m, _ := f.Model()
	plan, err := m.StreamPlan()
	if err != nil {
		t.Fatal(err)
	}
	answer := func(o Options) (string, *Model) {
		o.Context, o.Batch, o.Threads, o.Meter = 1024, 1, 2, prom.New
		model, err := Open(t.Context(), f.Path(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = model.Close() })
		text, err := Text(model.Generate(t.Context(), strings.Repeat("some words ", 60), Settings{MaxTokens: 12, IgnoreEnd: true}))
		if err != nil {
			t.Fatal(err)
		}
		return text, model
	}
	tiers := func() []string { return []string{"host=1MiB", "ssd=" + t.TempDir() + ",64MiB"} }
	want, alone := answer(Options{Tiers: tiers()})
	got, model := answer(Options{Tiers: tiers(), Weights: fmt.Sprintf("host=%d", plan.LeastBytes()+1<<20)})
	if got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	use := model.engine.DiskUse()
	if len(use) != 2 || use[0].Name != "weights" || use[1].Name != "kv" || use[0].Bytes == 0 || use[1].Bytes == 0 || use[1].Turns < use[1].Waits || alone.engine.DiskUse() != nil {
		t.Errorf("the disk's users %+v; with all weights in memory %+v", use, alone.engine.DiskUse())
	}
	w := httptest.NewRecorder()
	model.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/metrics", nil))
	for _, name := range []string{"terrace_disk_weights_bytes_total ", "terrace_disk_kv_turns_total ", "terrace_disk_kv_waits_total "} {
		if !strings.Contains(w.Body.String(), "\n"+name) {
			t.Errorf("metrics have no %s", name)
		}
	}
	t.Logf("%+v", use)
}

// TestExpertsLive: who asks a server for maps sees where each expert is; who does not ask sees none.
func TestExpertsLive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	spec := convert.Spec{Arch: "gpt-oss", Layers: 2, Hidden: 128, HeadDim: 64, Heads: 2, KVHeads: 1, SpecExperts: convert.SpecExperts{Experts: 8, ExpertsUsed: 2}, Vocab: 300, Context: 256, Seed: 7}
	spec.SetDefaults()
	if err := convert.Synthesize(t.Context(), path, spec, convert.Options{Type: quant.Q8_0}); err != nil {
		t.Fatal(err)
	}
	model, err := Open(t.Context(), path, Options{Weights: "host=2000KiB", Template: "{{ messages[0].content }}"})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	server := httptest.NewServer(model.Handler())
	defer server.Close()
	if _, err := Text(model.Generate(t.Context(), "some words", Settings{MaxTokens: 3, IgnoreEnd: true})); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"", "?cache=1", ""} { // each beside those before
		asked := query != ""
		r, err := http.Get(server.URL + "/v1/terrace/tiers" + query)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		line, err := bufio.NewReader(r.Body).ReadString('\n')
		var p struct {
			Experts map[int]string `json:"experts"`
		}
		if err := errors.Join(err, json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &p)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if (len(p.Experts) == 2) != asked || !asked && p.Experts != nil {
			t.Errorf("%q: %v", query, p.Experts)
		}
		for layer, row := range p.Experts {
			if len(row) != 8 || strings.Trim(row, "abcd") != "" {
				t.Errorf("layer %d: %s", layer, row)
			}
		}
		if all := p.Experts[0] + p.Experts[1]; asked && (!strings.Contains(all, "d") || !strings.Contains(all, "a")) {
			t.Errorf("experts %v", p.Experts)
		}
	}
}

// TestExpertsShareABias: the experts of a layer are slices of one bias in memory, not each of a copy of all.
func TestExpertsShareABias(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	spec := convert.Spec{Arch: "gpt-oss", Layers: 1, Hidden: 64, HeadDim: 32, Heads: 2, KVHeads: 1, SpecExperts: convert.SpecExperts{Experts: 8, ExpertsUsed: 2}, Vocab: 300, Context: 256, Seed: 7}
	spec.SetDefaults()
	if err := convert.Synthesize(t.Context(), path, spec, convert.Options{Type: quant.F32}); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := f.Model()
	if err != nil {
		t.Fatal(err)
	}
	for name, experts := range map[string][]*model.Linear{"gate": m.Params.Layers[0].ExpertGate, "up": m.Params.Layers[0].ExpertUp, "down": m.Params.Layers[0].ExpertDown} {
		var all []float32
		for e, l := range experts {
			bias, err := l.BiasValues()
			if err != nil || len(bias) != l.Rows {
				t.Fatalf("%s, expert %d: %d numbers, %v", name, e, len(bias), err)
			}
			if e == 0 {
				all = bias[:cap(bias)]
			}
			if len(all) != len(experts)*l.Rows || &all[e*l.Rows] != &bias[0] {
				t.Errorf("%s, expert %d: its bias lies in an array of its own, or in one of %d numbers", name, e, len(all))
			}
		}
	}
}
