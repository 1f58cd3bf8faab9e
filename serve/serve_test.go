package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/kernels/quant"
	"terrace/model"
	"terrace/serve/meter/prom"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/convert"
	"terrace/weights/vocab"
)

// smallModel is a random llama of 2 layers with a byte tokenizer: made once a run.
var smallModel = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "terrace-serve-*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "small.gguf")
	return path, convert.Synthesize(context.Background(), path, convert.Spec{Arch: "llama", Layers: 2, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 32,
		FFN: 96, Vocab: 300, Context: 512, Seed: 5}, convert.Options{Type: quant.Q8_0})
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := smallModel(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

const testTemplate = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"

// bench is a server on the small model, and an engine of the same options to compare with.
type bench struct {
	*Server
	t     testing.TB
	http  *httptest.Server
	alone *engine.Engine
	tok   *tokenizer.Tokenizer
}

func newBench(t testing.TB, eo engine.Options, o Options) *bench {
	t.Helper()
	return newBenchWith(t, eo, o, func(*engine.Engine) {})
}

// newBenchWith prepares the server's engine first.
func newBenchWith(t testing.TB, eo engine.Options, o Options, prepare func(e *engine.Engine)) *bench {
	t.Helper()
	return newBenchEach(t, func() engine.Options { return eo }, o, prepare)
}

// newBenchEach asks for the options of each of the two engines.
func newBenchEach(t testing.TB, each func() engine.Options, o Options, prepare func(e *engine.Engine)) *bench {
	t.Helper()
	return newBenchOf(t, func(*tokenizer.Vocab) {}, each, o, prepare)
}

// newBenchOf has a vocabulary, or a chat template, of its own.
func newBenchOf(t testing.TB, dress func(v *tokenizer.Vocab), each func() engine.Options, o Options, prepare func(e *engine.Engine)) *bench {
	t.Helper()
	path, err := smallModel()
	if err != nil {
		t.Fatal(err)
	}
	return newBenchOn(t, path, dress, each, o, prepare)
}

// newBenchOn has a model of its own.
func newBenchOn(t testing.TB, path string, dress func(v *tokenizer.Vocab), each func() engine.Options, o Options, prepare func(e *engine.Engine)) *bench {
	t.Helper()
	open := func() (*engine.Engine, *tokenizer.Tokenizer) {
		file, err := weights.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := model.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		eo := each()
		eo.Threads = 1
		e, err := engine.Open(m, eo)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if kv := e.KV(); kv.Sequences != 0 || kv.InUseBytes != 0 && !e.KVBelowHost() {
				t.Errorf("%d bytes of KV are left, of %d texts", kv.InUseBytes, kv.Sequences)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			file.Close()
		})
		v, err := vocab.FromModel(file.Meta(), "")
		if err != nil {
			t.Fatal(err)
		}
		v.ChatTemplate = testTemplate
		dress(&v)
		tok, err := tokenizer.New(v)
		if err != nil {
			t.Fatal(err)
		}
		return e, tok
	}
	b := &bench{t: t}
	b.alone, b.tok = open()
	o.Engine, o.Tokenizer = open()
	prepare(o.Engine)
	o.Names = []string{"small", "other"}
	o.Meter = prom.New
	var err error
	if b.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	b.http = httptest.NewServer(b.Handler())
	t.Cleanup(func() { b.Close(); b.http.Close() })
	return b
}

// post sends a body; it returns status and answer.
func (b *bench) post(path, body string) (int, string) {
	b.t.Helper()
	r, err := http.Post(b.http.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Body.Close()
	out, err := io.ReadAll(r.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.StatusCode, withoutComments(string(out))
}

// withoutComments is a stream of events without the comments that keep a slow one's connection open.
func withoutComments(stream string) string { return strings.ReplaceAll(stream, ": keep-alive\n\n", "") }

// want is what infer generate says.
func (b *bench) want(policy, prompt string, n int, o model.SamplerOptions) string {
	b.t.Helper()
	return b.wantOf(policy, prompt, true, n, o)
}

// wantOf is want of a text that begins as a document does, or as a rendered chat.
func (b *bench) wantOf(policy, prompt string, document bool, n int, o model.SamplerOptions) string {
	b.t.Helper()
	ids, err := b.tok.Encode(prompt, document, true)
	if err != nil {
		b.t.Fatal(err)
	}
	spec := mustPolicy(b.t, policy)
	s, err := b.alone.NewSession(spec)
	if err != nil {
		b.t.Fatal(err)
	}
	defer s.Close()
	res, err := s.Generate(b.t.Context(), engine.Request{IDs: ids, MaxTokens: n, Sampler: o, IsEnd: b.tok.IsEOG, Text: b.tok.NewDetokenizer()})
	if err != nil {
		b.t.Fatal(err)
	}
	return res.Text
}

func jsonText(s string) string {
	out, _ := json.Marshal(s)
	return string(out)
}

func textOf(t testing.TB, answer string) string {
	t.Helper()
	var c completion
	if err := json.Unmarshal([]byte(answer), &c); err != nil || len(c.Choices) == 0 {
		t.Fatalf("%s: %v", answer, err)
	}
	return c.Choices[0].Text
}

// TestTextIsTheEngines: texts of requests that are served together are those that the engine makes of each alone: greedy,
// seeded, under policies, of prompts that are read in parts.
func TestTextIsTheEngines(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Batch: 4, Queue: 64})
	type question struct {
		prompt, policy, want string
		o                    model.SamplerOptions
	}
	var questions []question
	for i := range 16 {
		q := question{prompt: strings.Repeat(fmt.Sprintf("a prompt of number %d; ", i), 1+i%5*3), policy: []string{"full", "streaming_llm:budget=32", "h2o:budget=40%", "snapkv:budget=50%"}[i%4],
			o: model.SamplerOptions{Temperature: float64(i%3) / 2, TopP: 0.95, TopPSet: true, TopK: 40, Seed: uint64(i)}}
		q.want = b.want(q.policy, q.prompt, 20+i, q.o)
		questions = append(questions, q)
	}
	var wg sync.WaitGroup
	for i, q := range questions {
		wg.Go(func() {
			status, out := b.post("/v1/completions", fmt.Sprintf(`{"model": "small", "prompt": %s, "max_tokens": %d, "temperature": %g, "top_p": 0.95, "top_k": 40, "seed": %d, "kv_policy": %q}`,
				jsonText(q.prompt), 20+i, q.o.Temperature, i, q.policy))
			if status != 200 {
				t.Errorf("request %d: %d %s", i, status, out)
			} else if have := textOf(t, out); have != q.want {
				t.Errorf("request %d under %s: %q, want %q", i, q.policy, have, q.want)
			}
		})
	}
	wg.Wait()
}

// TestStreams: the pieces of a stream are the whole text; frames have the form that clients expect.
func TestStreams(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Queue: 4})
	want := b.want("full", "stream this", 24, model.SamplerOptions{})
	ids, _ := b.tok.Encode("stream this", true, true)
	if _, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 24, "temperature": 0}`, strings.ReplaceAll(fmt.Sprint(ids), " ", ","))); textOf(t, out) != want {
		t.Errorf("token ids as prompt: %s, want %q", out, want)
	}
	_, out := b.post("/v1/completions", `{"prompt": "stream this", "max_tokens": 24, "temperature": 0, "stream": true, "stream_options": {"include_usage": true}}`)
	frames := strings.Split(strings.TrimSuffix(out, "\n\n"), "\n\n")
	if frames[len(frames)-1] != "data: [DONE]" {
		t.Fatalf("the last frame is %q", frames[len(frames)-1])
	}
	text := ""
	for _, f := range frames[:len(frames)-1] {
		var c completion
		if err := json.Unmarshal([]byte(strings.TrimPrefix(f, "data: ")), &c); err != nil {
			t.Fatalf("%q: %v", f, err)
		}
		if len(c.Choices) > 0 {
			text += c.Choices[0].Text
		} else if c.Usage == nil || c.Timings == nil || c.Usage.PromptTokens != c.Timings.PromptN {
			t.Errorf("the last chunk has no usage or timings: %s", f)
		}
	}
	if text != want {
		t.Errorf("streamed %q, want %q", text, want)
	}
}

// TestTopTokensThatAreNoText: likely tokens that are parts of characters are shown as bytes, and the answer is JSON.
func TestTopTokensThatAreNoText(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{})
	for path, body := range map[string]string{"/v1/completions": `{"prompt": "stream this", "max_tokens": 24, "temperature": 0, "logprobs": 20, "echo": true}`,
		"/v1/chat/completions": `{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 24, "temperature": 0, "logprobs": true, "top_logprobs": 20}`} {
		if status, out := b.post(path, body); status != 200 || !strings.Contains(out, `bytes:\\x`) {
			t.Errorf("%s: %d %.300s", path, status, out)
		}
	}
}

// TestRefusals: what is wrong is 400 and names the field.
func TestRefusals(t *testing.T) {
	b := newBench(t, engine.Options{Context: 64}, Options{Queue: 4})
	for _, c := range []struct {
		path, body string
		status     int
		names      string
	}{
		{"/v1/completions", `{"prompt": "a", "no_such": 1}`, 400, "no_such"},
		{"/v1/completions", `{"prompt": "a", "temperature": "hot"}`, 400, "temperature"},
		{"/v1/completions", `{"prompt": "a", "top_p": 7}`, 400, "top_p"},
		{"/v1/completions", `{"prompt": "a", "kv_policy": "nonsense"}`, 400, "kv_policy"},
		{"/v1/completions", `{"prompt": "a", "kv_policy": "duo_attention:pattern=0.1/0.2/0.3"}`, 400, "3 numbers"},
		{"/v1/completions", `{"prompt": "a", "kv_policy": "qfilter:filters=@/etc/some.safetensors"}`, 400, "no request's"},
		{"/v1/completions", `{"prompt": "a", "stop": ["a", 1]}`, 400, "stop"},
		{"/v1/completions", `{"prompt": [1, 999]}`, 400, "999"},
		{"/v1/completions", `{"prompt": [1, -1]}`, 400, "-1"},
		{"/v1/completions", `{"prompt": ["a", 1]}`, 400, "prompt"},
		{"/v1/completions", `{"prompt": "a", "prompt": "b"}`, 400, "prompt"},
		{"/v1/completions", `{"prompt": "a", "n": 9}`, 400, "n"},
		{"/v1/completions", `{"prompt": "a", "stream_options": {"what": true}, "stream": true}`, 400, "stream_options.what"},
		{"/v1/completions", `{"prompt": "a", "stream_options": {"include_usage": true}}`, 400, "stream_options"},
		{"/v1/responses", `{"input": "a", "stream_options": {"include_obfuscation": false}}`, 400, "stream_options"},
		{"/v1/completions", `{"prompt": ` + jsonText(strings.Repeat("x", 70)) + `}`, 400, "64"},
		{"/v1/completions", `{"prompt": "a", "model": "none"}`, 404, "model"},
		{"/v1/completions", `{`, 400, "JSON"},
		{"/v1/completions", strings.Repeat("[", 1000), 400, "nested"},
		{"/v1/chat/completions", `{"messages": [{"role": "nobody", "content": "a"}]}`, 400, "messages"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]}`, 400, "messages"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "a"}], "top_logprobs": 3}`, 400, "top_logprobs"},
		{"/v1/completions", `{"prompt": ` + jsonText(strings.Repeat("x", maxBodyBytes)) + `}`, 413, "8 MiB"},
		{"/nothing", `{}`, 404, "route"},
	} {
		status, out := b.post(c.path, c.body)
		if status != c.status || !strings.Contains(out, c.names) {
			t.Errorf("%.80s: %d %s, want %d and %q", c.body, status, out, c.status, c.names)
		}
	}
}

// TestPanicFailsOneRequest: a bug while one request is served is a 500 for it; the others go on.
func TestPanicFailsOneRequest(t *testing.T) {
	for _, where := range []string{"step", "publish", "swap"} {
		t.Run(where, func(t *testing.T) { panicsIn(t, where) })
	}
}

func panicsIn(t *testing.T, where string) {
	room := engine.Options{Context: 400}
	if where == "swap" { // for two texts
		room.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: 64 * 256}}
	}
	b := newBench(t, room, Options{Batch: 4, Queue: 16})
	steps := 0
	b.loop.crash = func(what string) {
		if what != where {
			return
		}
		if steps++; steps == 7 || where == "swap" && steps == 1 {
			panic("a test")
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for i := range 8 {
		wg.Go(func() {
			status, _ := b.post("/v1/completions", fmt.Sprintf(`{"prompt": "request %d", "max_tokens": 30, "ignore_eos": true}`, i))
			mu.Lock()
			codes[status]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if codes[500] != 1 || codes[200] != 7 {
		t.Errorf("%v, want one 500 and seven 200", codes)
	}
}
