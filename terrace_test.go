package terrace_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"terrace"
	"terrace/hub"
	"terrace/internal/kernels/quant"
	"terrace/model"
	"terrace/weights/convert"
	"terrace/weights/hf/hftest"
)

// tiny is a random llama of 2 layers with a byte tokenizer, made once a run.
var tiny = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "terrace-*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "tiny.gguf")
	return path, convert.Synthesize(context.Background(), path, convert.Spec{Arch: "llama", Layers: 2, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 32,
		FFN: 96, Vocab: 300, Context: 512, Seed: 5}, convert.Options{Type: quant.Q8_0})
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := tiny(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func open(t testing.TB, o terrace.Options) *terrace.Model {
	t.Helper()
	path, err := tiny()
	if err != nil {
		t.Fatal(err)
	}
	o.Threads = 1
	m, err := terrace.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestOneText: the same text comes out of Generate, alone and among others, of a Session, of a fork, on tiers and over HTTP.
func TestOneText(t *testing.T) {
	const prompt, rest = "the terraces hold the water, ", "and the water holds the light"
	settings := terrace.Settings{MaxTokens: 24, Temperature: 0.8, TopK: 40, Seed: 3, IgnoreEnd: true}
	m := open(t, terrace.Options{})
	want, err := terrace.Text(m.Generate(t.Context(), prompt+rest, settings))
	if err != nil || want == "" {
		t.Fatalf("%q, %v", want, err)
	}
	same := func(what, got string, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", what, got, err, want)
		}
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			got, err := terrace.Text(m.Generate(t.Context(), prompt+rest, settings))
			same(fmt.Sprintf("number %d of four", i), got, err)
		})
		wg.Go(func() {
			if _, err := terrace.Text(m.Generate(t.Context(), fmt.Sprintf("another %d", i), settings)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Go(func() {
		s, err := m.NewSession("")
		if err != nil {
			t.Error(err)
			return
		}
		defer s.Close()
		if err := errors.Join(s.Read(t.Context(), prompt), s.Read(t.Context(), rest)); err != nil {
			t.Error(err)
		}
		fork, err := s.Fork("")
		if err != nil {
			t.Error(err)
			return
		}
		defer fork.Close()
		got, err := terrace.Text(s.Generate(t.Context(), settings))
		same("a session", got, err)
		got, err = terrace.Text(fork.Generate(t.Context(), settings))
		same("its fork", got, err)
	})
	wg.Wait()

	tiered := open(t, terrace.Options{Tiers: []string{"host=1MiB", "ssd=" + t.TempDir() + ",64MiB"}})
	got, err := terrace.Text(tiered.Generate(t.Context(), prompt+rest, settings))
	same("on tiers", got, err)

	web := httptest.NewServer(m.Handler())
	defer web.Close()
	body := fmt.Sprintf(`{"prompt":%q,"max_tokens":24,"temperature":0.8,"top_k":40,"seed":3,"ignore_eos":true}`, prompt+rest)
	r, err := web.Client().Post(web.URL+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err != nil || !strings.Contains(string(answer), fmt.Sprintf(`"completion_tokens":%d`, 24)) {
		t.Errorf("over HTTP: %v %s, %v", r.Status, answer, err)
	}
}

// TestSessionGoesOn: what was generated is part of the text, whether it was taken to its end or left, and a policy's part is seen.
func TestSessionGoesOn(t *testing.T) {
	m := open(t, terrace.Options{})
	s, err := m.NewSession("h2o:budget=16,recent=8")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Read(t.Context(), strings.Repeat("a long text ", 10)); err != nil {
		t.Fatal(err)
	}
	before, err := s.KV()
	if err != nil || before.Kept != 16 || before.Tokens < 100 {
		t.Errorf("%+v, %v", before, err)
	}
	tokens := 0
	for p, err := range s.Generate(t.Context(), terrace.Settings{MaxTokens: 9, IgnoreEnd: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if tokens += len(p.Tokens); tokens == 5 {
			break // in the middle
		}
	}
	if after, err := s.KV(); err != nil || after.Tokens != before.Tokens+5 {
		t.Errorf("after five tokens: %+v, %v", after, err)
	}
	if err := s.Read(t.Context(), "and more"); err != nil {
		t.Error(err)
	}
	s.Close()
	s.Close()
	if err := s.Read(t.Context(), "x"); !errors.Is(err, terrace.ErrClosed) {
		t.Errorf("a closed session: %v", err)
	}
	if _, err := terrace.Text(s.Generate(t.Context(), terrace.Settings{})); !errors.Is(err, terrace.ErrClosed) {
		t.Errorf("an answer of a closed session: %v", err)
	}
	if other, err := m.NewSession(""); err != nil {
		t.Error(err)
	} else if _, err := terrace.Text(other.Generate(t.Context(), terrace.Settings{TopP: 5})); !errors.Is(err, terrace.ErrOption) {
		t.Errorf("a share of 5: %v", err)
	}
}

// TestSessionAnswers: an answer in two parts is that of one, all its tokens are told, and each is part of the text that the session has.
func TestSessionAnswers(t *testing.T) {
	m := open(t, terrace.Options{})
	var said [2]string
	for i, parts := range [][]int{{12}, {5, 7}} {
		s, err := m.NewSession("")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Read(t.Context(), "the tide takes "); err != nil {
			t.Fatal(err)
		}
		start, err := s.KV()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range parts {
			tokens, logprobs, told := 0, 0, 0
			for p, err := range s.Generate(t.Context(), terrace.Settings{Greedy: true, MaxTokens: n, IgnoreEnd: true, Logprobs: true}) {
				if err != nil {
					t.Fatal(err)
				}
				said[i] += p.Text
				tokens, logprobs = tokens+len(p.Tokens), logprobs+len(p.Logprobs)
				if p.Use != nil {
					told = p.Use.Tokens
				}
			}
			if tokens != n || logprobs != n || told != n {
				t.Errorf("%d tokens, %d log probabilities, %d told of, want %d each", tokens, logprobs, told, n)
			}
		}
		fork, err := s.Fork("")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*terrace.Session{s, fork} {
			if err := s.Read(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			if kv, err := s.KV(); err != nil || kv.Tokens != start.Tokens+12 {
				t.Errorf("%v: %d tokens behind %d, want 12 more, %v", parts, kv.Tokens, start.Tokens, err)
			}
			s.Close()
		}
	}
	if said[0] != said[1] {
		t.Errorf("%q in two parts, %q in one", said[1], said[0])
	}
}

// TestErrors: what is wrong is said by a sentinel.
func TestErrors(t *testing.T) {
	m := open(t, terrace.Options{})
	for what, c := range map[string]struct {
		settings terrace.Settings
		prompt   string
		want     error
	}{
		"policy":  {terrace.Settings{Policy: "nosuch"}, "x", terrace.ErrPolicy},
		"context": {terrace.Settings{}, strings.Repeat("x", 5000), terrace.ErrContext},
		"tokens":  {terrace.Settings{MaxTokens: -1}, "x", terrace.ErrOption},
		"cold":    {terrace.Settings{Temperature: -1}, "x", terrace.ErrOption},
		"share":   {terrace.Settings{TopP: 5}, "x", terrace.ErrOption},
		"budget":  {terrace.Settings{Policy: "snapkv:budget=-3"}, "x", terrace.ErrOption},
		"stop":    {terrace.Settings{Stop: []string{"a", ""}}, "x", terrace.ErrOption},
	} {
		if _, err := terrace.Text(m.Generate(t.Context(), c.prompt, c.settings)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, bad := range [][]terrace.Message{nil, {{Role: "usr", Content: "x"}}} {
		if _, err := terrace.Text(m.Chat(t.Context(), bad, terrace.Settings{})); !errors.Is(err, terrace.ErrOption) {
			t.Errorf("messages %v: %v", bad, err)
		}
	}
	if _, err := m.NewSession("snapkv:budget=-3"); !errors.Is(err, terrace.ErrOption) {
		t.Errorf("a session's budget below 0: %v", err)
	}
	if _, err := terrace.Text(m.Chat(t.Context(), []terrace.Message{{Role: "user", Content: "x"}}, terrace.Settings{})); !errors.Is(err, terrace.ErrNoTemplate) {
		t.Errorf("no template: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, err := range m.Generate(ctx, "x", terrace.Settings{IgnoreEnd: true}) {
		if cancel(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	small := open(t, terrace.Options{Tiers: []string{"host=32KiB"}})
	if _, err := terrace.Text(small.Generate(t.Context(), strings.Repeat("x", 300), terrace.Settings{MaxTokens: 9})); !errors.Is(err, terrace.ErrMemory) {
		t.Errorf("32 KiB of KV: %v", err)
	}
	if _, err := terrace.Open(t.Context(), filepath.Join(t.TempDir(), "none.gguf"), terrace.Options{}); err == nil {
		t.Error("a file that is not there was opened")
	}
	text := filepath.Join(t.TempDir(), "text.gguf")
	if err := os.WriteFile(text, []byte("this is no model, though its name says so"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, _ := tiny()
	for what, err := range map[string]error{
		"a text":                 second(terrace.OpenFile(t.Context(), text, terrace.Options{})),
		"a folder without files": second(terrace.Open(t.Context(), t.TempDir(), terrace.Options{})),
		"a llama as an encoder":  second(terrace.OpenEncoder(t.Context(), path, terrace.Options{})),
	} {
		if !errors.Is(err, terrace.ErrModel) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := terrace.Text(m.Generate(t.Context(), "x", terrace.Settings{})); !errors.Is(err, terrace.ErrClosed) {
		t.Errorf("a closed model: %v", err)
	}
	if _, err := m.NewSession(""); !errors.Is(err, terrace.ErrClosed) {
		t.Errorf("a closed model: %v", err)
	}
}

// TestSettingsOfOpen: KV types, adapters and a template of the caller's own do what they say, and are refused where they say nothing.
func TestSettingsOfOpen(t *testing.T) {
	path, err := tiny()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := "base_model.model.model.layers.0.mlp.down_proj.lora_"
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(`{"peft_type": "LORA", "lora_alpha": 64, "r": 4}`), 0o600),
		hftest.WriteTensors(filepath.Join(dir, "adapter_model.safetensors"), hftest.Shapes{name + "A.weight": {4, 96}, name + "B.weight": {64, 4}})); err != nil {
		t.Fatal(err)
	}
	said := func(o terrace.Options) string {
		t.Helper()
		text, err := terrace.Text(open(t, o).Generate(t.Context(), "the water holds the light", terrace.Settings{MaxTokens: 40, IgnoreEnd: true}))
		if err != nil || text == "" {
			t.Fatalf("%+v: %q, %v", o, text, err)
		}
		return text
	}
	plain, coarse := said(terrace.Options{}), said(terrace.Options{KVType: "int4", KVWindow: -1, KVRotate: "kv"})
	if plain == coarse {
		t.Error("int4 KV changes nothing")
	}
	for what, c := range map[string]struct {
		o    terrace.Options
		want string
	}{
		"named defaults": {terrace.Options{Backend: "native", DType: "f32", KVType: "f16", KVWindow: 128}, plain},
		"both sides":     {terrace.Options{KVType: "k=int4,v=int4", KVWindow: -1, KVRotate: "kv"}, coarse},
		"scale 0":        {terrace.Options{Adapters: []terrace.Adapter{{Path: dir}}}, plain},
	} {
		if got := said(c.o); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	if said(terrace.Options{Adapters: []terrace.Adapter{{Path: dir, Scale: 1}}}) == plain {
		t.Error("an adapter changes nothing")
	}
	hello := []terrace.Message{{Role: "user", Content: "the water holds the light"}}
	m := open(t, terrace.Options{Template: "<{{ messages[0]['content'] }}>"})
	text, err := terrace.Text(m.Chat(t.Context(), hello, terrace.Settings{MaxTokens: 8, IgnoreEnd: true}))
	if err != nil || text == "" {
		t.Errorf("a template of one's own: %q, %v", text, err)
	}
	for what, c := range map[string]struct {
		o    terrace.Options
		want error
	}{
		"KV type":  {terrace.Options{KVType: "int9"}, terrace.ErrOption},
		"twice":    {terrace.Options{KVType: "k=f16,k=f32"}, terrace.ErrOption},
		"type":     {terrace.Options{DType: "f64"}, terrace.ErrOption},
		"backend":  {terrace.Options{Backend: "abacus"}, model.ErrUnknownBackend},
		"template": {terrace.Options{Template: " \n"}, terrace.ErrOption},
		"adapter":  {terrace.Options{Adapters: []terrace.Adapter{{Path: t.TempDir(), Scale: 1}}}, terrace.ErrModel},
	} {
		if _, err := terrace.Open(t.Context(), path, c.o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestPoliciesThatRead: policies that have the model read more than the prompt (infinigen a sample text, kvzip its words) do so
// where they are the model's own, and where an answer or a session of a model without a policy names them.
func TestPoliciesThatRead(t *testing.T) {
	home := hub.Options{Home: t.TempDir()}
	plain := open(t, terrace.Options{Hub: home})
	settings := terrace.Settings{MaxTokens: 8, IgnoreEnd: true}
	prompt := strings.Repeat("the water holds the light, ", 6)
	for _, under := range []string{"infinigen:budget=32,sample=8", "kvzip:ratio=0.5"} {
		want, err := terrace.Text(open(t, terrace.Options{Hub: home, Policy: under}).Generate(t.Context(), prompt, settings))
		if err != nil || want == "" {
			t.Errorf("%s: %q, %v", under, want, err)
		}
		own := settings
		own.Policy = under
		if got, err := terrace.Text(plain.Generate(t.Context(), prompt, own)); err != nil || got != want {
			t.Errorf("%s of an answer: %q, %v; want %q", under, got, err, want)
		}
		s, err := plain.NewSession(under)
		if err == nil {
			err = s.Read(t.Context(), prompt)
		}
		if err != nil {
			t.Errorf("%s of a session: %v", under, err)
			continue
		}
		if got, err := terrace.Text(s.Generate(t.Context(), settings)); err != nil || got != want {
			t.Errorf("%s of a session: %q, %v; want %q", under, got, err, want)
		}
	}
	if kept, err := filepath.Glob(filepath.Join(home.Home, "decompositions", "*.svd")); err != nil || len(kept) != 1 {
		t.Errorf("decompositions kept: %v, %v", kept, err)
	}
}
