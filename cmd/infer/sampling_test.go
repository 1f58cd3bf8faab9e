package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace"
	"terrace/model"
	"terrace/weights/gguf"
)

// withSampling copies the tiny model, as its makers would have it sampled.
func withSampling(t *testing.T, keys map[string]any) string {
	t.Helper()
	in, err := gguf.Open(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var infos []gguf.Info
	for _, x := range in.Tensors() {
		infos = append(infos, gguf.Info{Name: x.Name, Type: x.Type, Shape: x.Shape})
	}
	for key, v := range keys {
		in.Meta().Set(key, v)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w, err := gguf.NewWriter(out, in.Meta(), infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range in.Tensors() {
		b, err := x.Bytes()
		if err == nil {
			_, err = w.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestOneDefault: what a command samples by where nothing is said is what the Go API and the server do, the model's makers' wish where there
// is one; a flag comes before it.
func TestOneDefault(t *testing.T) {
	template := filepath.Join(t.TempDir(), "t.jinja")
	if err := os.WriteFile(template, []byte("{{ messages[0].content }}"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := map[string]any{"general.sampling.temp": float32(0.3), "general.sampling.top_k": int32(3), "general.sampling.penalty_repeat": float32(1.3)}
	said := map[string]bool{}
	for _, c := range []struct {
		what     string
		keys     map[string]any
		flags    string
		settings terrace.Settings
		served   [3]float64
	}{
		{"nothing is said", nil, "", terrace.Settings{}, [3]float64{1, 0, 1}},
		{"the makers' wish", own, "", terrace.Settings{}, [3]float64{float64(float32(0.3)), 3, float64(float32(1.3))}},
		{"a flag before it", own, "--top-k 30 --temp 0.9", terrace.Settings{TopK: 30, Temperature: 0.9}, [3]float64{float64(float32(0.9)), 30, float64(float32(1.3))}},
		{"their wish left", own, "--own-sampling=false", terrace.Settings{Sampler: &model.SamplerOptions{Temperature: 1, TopP: 1}}, [3]float64{1, 0, 1}},
	} {
		path := withSampling(t, c.keys)
		m, err := terrace.Open(t.Context(), path, terrace.Options{Threads: 1, Template: "{{ messages[0].content }}"})
		if err != nil {
			t.Fatal(err)
		}
		c.settings.MaxTokens, c.settings.Seed = 30, 4
		want, err := terrace.Text(m.Generate(t.Context(), "the water", c.settings))
		if err != nil {
			t.Fatal(err)
		}
		chat, err := terrace.Text(m.Chat(t.Context(), []terrace.Message{{Role: "user", Content: "the water"}}, c.settings))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"-m", path, "-q", "-t", "1", "-n", "30", "--seed", "4"}, strings.Fields(c.flags)...)
		if code, out, errs := inferWith(t, "", append([]string{"generate", "--raw", "the water"}, args...)...); code != 0 || strings.TrimSuffix(out, "\n") != strings.TrimSuffix(want, "\n") {
			t.Errorf("%s: exit %d %q, want %q: %s", c.what, code, out, want, errs)
		}
		if code, out, errs := inferWith(t, "the water\n", append([]string{"chat", "--no-history", "--chat-template", template}, args...)...); code != 0 || strings.TrimSuffix(out, "\n") != strings.TrimSuffix(chat, "\n") {
			t.Errorf("%s: chat: exit %d %q, want %q: %s", c.what, code, out, chat, errs)
		}
		serving := &serveCommand{app: &app{}, load: loadFlags{serves: true}, traces: &traceFolder{}}
		cmd := newServeOf(serving)
		if err := cmd.ParseFlags(strings.Fields(c.flags)); err != nil {
			t.Fatal(err)
		}
		file, err := terrace.OpenFile(t.Context(), path, terrace.Options{})
		if err != nil {
			t.Fatal(err)
		}
		makers, err := model.OwnSampling(file.Weights())
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		served, settings := model.DefaultSampling(), serving.sampling.over(makers)
		settings.Apply(&served)
		if got := [3]float64{float64(float32(served.Temperature)), float64(served.TopK), float64(float32(served.RepeatPenalty))}; got != c.served {
			t.Errorf("%s: serve samples by temperature, top-k and repeat penalty %v, want %v", c.what, got, c.served)
		}
		said[want] = true
	}
	if len(said) < 3 { // no wish, and a wish that is left, are one
		t.Errorf("%d different texts: the test sees little", len(said))
	}
}
