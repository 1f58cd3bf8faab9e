package terrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"terrace"
	"terrace/model"
	"terrace/weights/gguf"
)

// post sends a request to a model's handler.
func post(t *testing.T, m *terrace.Model, path, body string) string {
	t.Helper()
	web := httptest.NewServer(m.Handler())
	defer web.Close()
	r, err := web.Client().Post(web.URL+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	out, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 {
		t.Fatalf("%s: %s %s, %v", path, r.Status, out, err)
	}
	return string(out)
}

// TestOneDefault: who says nothing of sampling gets the same text here as over HTTP, as the model's makers have it sampled where they say so.
func TestOneDefault(t *testing.T) {
	path, err := tiny()
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for name, keys := range map[string]map[string]any{"none": nil, "own": {"general.sampling.temp": float32(0.3), "general.sampling.top_k": int32(3)}} {
		file := filepath.Join(t.TempDir(), "m.gguf")
		if err := withKeys(path, file, keys); err != nil {
			t.Fatal(err)
		}
		m, err := terrace.Open(t.Context(), file, terrace.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		text, err := terrace.Text(m.Generate(t.Context(), "the water", terrace.Settings{MaxTokens: 30, Seed: 4}))
		if err != nil {
			t.Fatal(err)
		}
		var c struct{ Choices []struct{ Text string } }
		if err := json.Unmarshal([]byte(post(t, m, "/v1/completions", `{"prompt": "the water", "max_tokens": 30, "seed": 4}`)), &c); err != nil || c.Choices[0].Text != text {
			t.Errorf("%s: %q over HTTP, %q here, %v", name, c.Choices[0].Text, text, err)
		}
		s, err := m.NewSession("")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Read(t.Context(), "the water"); err != nil {
			t.Fatal(err)
		}
		if got, err := terrace.Text(s.Generate(t.Context(), terrace.Settings{MaxTokens: 30, Seed: 4})); err != nil || got != text {
			t.Errorf("%s: %q of a session, %v", name, got, err)
		}
		all := model.SamplerOptions{Temperature: 1, TopP: 1, TopPSet: true}
		got, err := terrace.Text(m.Generate(t.Context(), "the water", terrace.Settings{MaxTokens: 30, Seed: 4, Sampler: &all}))
		if err != nil || (got == text) != (keys == nil) {
			t.Errorf("%s: %q with samplers of one's own, %v", name, got, err)
		}
		if same, err := terrace.Text(m.Generate(t.Context(), "the water", terrace.Settings{MaxTokens: 30, Seed: 4, Temperature: 1, TopK: -1, TopP: 1})); err != nil || same != got {
			t.Errorf("%s: %q where all tokens may be drawn, %q by a sampler that says so, %v", name, same, got, err)
		}
		greedy, err := terrace.Text(m.Generate(t.Context(), "the water", terrace.Settings{MaxTokens: 30, Greedy: true, Temperature: 9}))
		if want, err2 := terrace.Text(m.Generate(t.Context(), "the water", terrace.Settings{MaxTokens: 30, TopK: 1, Temperature: 9, Seed: 7})); err != nil || err2 != nil || greedy != want {
			t.Errorf("%s: greedy %q, the likeliest of one %q, %v %v", name, greedy, want, err, err2)
		}
		said[text] = true
	}
	if len(said) != 2 {
		t.Error("the makers' keys change nothing")
	}
}

// TestFormats: answers are what they must be, of a model and of a session; what is no format, or cannot go with a forced call, is said.
func TestFormats(t *testing.T) {
	m := open(t, terrace.Options{Template: template})
	for want, f := range map[string]terrace.Format{`"a"`: terrace.Schema(`{"const": "a"}`), "x=12;": terrace.Regex("x=12;"), "yes": terrace.OneOf("yes"), "ab": terrace.Grammar(`root ::= "a" "b"`)} {
		text, err := terrace.Text(m.Generate(t.Context(), "say ", terrace.Settings{Format: f}))
		if strings.TrimSpace(text) != want || err != nil {
			t.Errorf("%q, %v; want %q", text, err, want)
		}
		s, err := m.NewSession("")
		if err == nil {
			err = s.Read(t.Context(), "say ")
		}
		if err != nil {
			t.Fatal(err)
		}
		if again, err := terrace.Text(s.Generate(t.Context(), terrace.Settings{Format: f})); again != text || err != nil {
			t.Errorf("a session: %q, %v; want %q", again, err, text)
		}
		s.Close()
	}
	object, err := terrace.Text(m.Generate(t.Context(), "say ", terrace.Settings{Format: terrace.Object(), MaxTokens: 5}))
	if err != nil || !strings.HasPrefix(strings.TrimSpace(object), "{") {
		t.Errorf("an object: %q, %v", object, err)
	}
	tool, user := []terrace.Tool{{Name: "f"}}, []terrace.Message{{Role: "user", Content: "x"}}
	for what, s := range map[string]terrace.Settings{
		"grammar": {Format: terrace.Grammar("root ::= nothing")}, "schema": {Format: terrace.Schema("{")}, "regex": {Format: terrace.Regex("(")}, "choice": {Format: terrace.OneOf()},
		"top": {Logprobs: true, Top: -1}, "much top": {Logprobs: true, Top: 1001}, "effort": {Effort: "huge"}, "thought": {Thought: -1}, "tool": {Tools: []terrace.Tool{{Name: "a b"}}}, "parameters": {Tools: []terrace.Tool{{Name: "f", Parameters: "{"}}},
		"choice of tools": {Tools: tool, Choice: "g"}, "no tools": {Choice: "required"}, "both": {Tools: tool, Choice: "f", Format: terrace.Object()},
	} {
		_, err := terrace.Text(m.Chat(t.Context(), user, s))
		if !errors.Is(err, terrace.ErrOption) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, x := range map[string]terrace.Message{"role": {Role: "usr"}, "a user's call": {Role: "user", Calls: []terrace.Call{{Name: "f", Arguments: "{}"}}}, "a user's thought": {Role: "user", Content: "x", Thought: "y"}, "a call of nothing": {Role: "assistant", Calls: []terrace.Call{{Arguments: "{}"}}}, "arguments": {Role: "assistant", Calls: []terrace.Call{{Name: "f", Arguments: "1"}}}, "ID": {Role: "user", CallID: "1"}} {
		if _, err := terrace.Text(m.Chat(t.Context(), []terrace.Message{x}, terrace.Settings{})); !errors.Is(err, terrace.ErrOption) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, s := range map[string]terrace.Settings{"tools": {Tools: tool}, "effort": {Effort: "low"}} {
		if _, err := terrace.Text(m.Generate(t.Context(), "x", s)); !errors.Is(err, terrace.ErrOption) {
			t.Errorf("%s of a text: %v", what, err)
		}
	}
}

// TestChatIsTheServers: a chat with turns, calls and results is answered as over HTTP.
func TestChatIsTheServers(t *testing.T) {
	const shown = "{% for m in messages %}<{{ m.role }}>{{ m.content if m.content is string else 'nothing said' }}{{ m.reasoning_content }}{{ m.tool_call_id }}{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments.n }}]{% endfor %}\n{% endfor %}{% for x in tools or [] %}{{ x.function.name }}: {{ x.function.description }}{% endfor %}<assistant>"
	m := open(t, terrace.Options{Template: shown})
	talk := []terrace.Message{{Role: "system", Content: "be short <|im_end|>"}, {Role: "user", Content: "how many?"},
		{Role: "assistant", Thought: "let me see", Calls: []terrace.Call{{ID: "call_1", Name: "count", Arguments: `{"n": 3}`}}}, {Role: "tool", CallID: "call_1", Content: "7"}}
	s := terrace.Settings{MaxTokens: 12, Seed: 2, Tools: []terrace.Tool{{Name: "count", Description: "counts", Parameters: `{"type": "object"}`}}, Logprobs: true, Top: 1}
	var text string
	var names []string
	var use *terrace.Use
	for p, err := range m.Chat(t.Context(), talk, s) {
		if err != nil {
			t.Fatal(err)
		}
		text, use = text+p.Text, p.Use
		for i, l := range p.Logprobs {
			if names = append(names, l.Name); l.Token != p.Tokens[i] || len(l.Top) != 1 || l.Top[0].Logprob < l.Logprob {
				t.Errorf("%+v", l)
			}
		}
	}
	var c struct {
		Choices []struct {
			Message  struct{ Content string }
			Logprobs struct{ Content []struct{ Token string } }
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		}
	}
	out := post(t, m, "/v1/chat/completions", `{"messages": [{"role": "system", "content": "be short <|im_end|>"}, {"role": "user", "content": "how many?"}, {"role": "assistant", "content": null, "reasoning_content": "let me see",
		"tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "count", "arguments": "{\"n\": 3}"}}]}, {"role": "tool", "tool_call_id": "call_1", "content": "7"}],
		"tools": [{"type": "function", "function": {"name": "count", "description": "counts", "parameters": {"type": "object"}}}], "max_tokens": 12, "seed": 2, "logprobs": true, "top_logprobs": 1}`)
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, x := range c.Choices[0].Logprobs.Content {
		want = append(want, x.Token)
	}
	if text != c.Choices[0].Message.Content || !slices.Equal(names, want) || use == nil || use.PromptTokens != c.Usage.Prompt {
		t.Errorf("%q %q %+v here, over HTTP %s", text, names, use, out)
	}
}

// TestThoughts: what a model thinks is apart from what it answers, in pieces and in a reply, and is as long as it may be.
func TestThoughts(t *testing.T) {
	m := open(t, terrace.Options{Template: "{{ messages[0].content }}<think>\n{# </think> #}"})
	user := []terrace.Message{{Role: "user", Content: "x"}}
	bounded := taken(t, m.Chat(t.Context(), user, terrace.Settings{MaxTokens: 40, Thought: 6, IgnoreEnd: true}))
	if n := bounded.Use.ThoughtTokens; n < 6 || n > 12 || len(bounded.Tokens) != 40 {
		t.Errorf("a thought of 6 tokens and what closes it: %d of %d", n, len(bounded.Tokens))
	}
	if n := taken(t, m.Generate(t.Context(), "x", terrace.Settings{MaxTokens: 5, IgnoreEnd: true})).Use.ThoughtTokens; n != 0 {
		t.Errorf("%d tokens of thought in a text", n)
	}
	reply, err := terrace.Reply(m.Chat(t.Context(), user, terrace.Settings{MaxTokens: 40, Thought: 6, IgnoreEnd: true}))
	if err != nil || reply.Thought == "" || reply.Content == "" || strings.Contains(reply.Content, "think>") || reply.Role != "assistant" {
		t.Errorf("%+v, %v", reply, err)
	}
	all, err := terrace.Reply(m.Chat(t.Context(), user, terrace.Settings{MaxTokens: 40, IgnoreEnd: true}))
	if err != nil || len(all.Thought) <= len(reply.Thought) {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestStoreOfModel: prompts outlive the model that read them, within a salt; the text is the same; what is no store is said before the
// model is opened.
func TestStoreOfModel(t *testing.T) {
	place, prompt := "ssd="+t.TempDir()+",16MiB", strings.Repeat("what they share ", 12)
	want, err := terrace.Text(open(t, terrace.Options{}).Generate(t.Context(), prompt, terrace.Settings{MaxTokens: 12}))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		salt   string
		cached bool
	}{{"", false}, {"", true}, {"other", false}} {
		m := open(t, terrace.Options{Store: []string{"host=4MiB", place}})
		text := ""
		for p, err := range m.Generate(t.Context(), prompt, terrace.Settings{MaxTokens: 12, Salt: c.salt}) {
			if err != nil {
				t.Fatal(err)
			}
			if text += p.Text; p.Use != nil && (p.Use.CachedTokens >= 128) != c.cached {
				t.Errorf("model %d: %d tokens from the store", i, p.Use.CachedTokens)
			}
		}
		if text != want {
			t.Errorf("model %d: %q, want %q", i, text, want)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	for i, cached := range []bool{false, true} {
		m := open(t, terrace.Options{Tiers: []string{"host=12MiB,prompts=4MiB", place + ",prompts=8MiB"}})
		for p, err := range m.Generate(t.Context(), prompt, terrace.Settings{MaxTokens: 12}) {
			if err != nil {
				t.Fatal(err)
			}
			if p.Use != nil && (p.Use.CachedTokens >= 128) != cached {
				t.Errorf("tiers' prompts, model %d: %d tokens", i, p.Use.CachedTokens)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	path, _ := tiny()
	for _, bad := range []string{"host", "tape=1GiB", "ssd=,1GiB"} {
		if _, err := terrace.Open(t.Context(), path, terrace.Options{Store: []string{bad}}); !errors.Is(err, terrace.ErrOption) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	notice := ""
	if m, err := terrace.Open(t.Context(), path, terrace.Options{Store: []string{"valkey=127.0.0.1:1,1GiB"}, Notice: func(line string) { notice += line }}); err != nil || notice == "" {
		t.Errorf("a server that is not there: %q, %v", notice, err)
	} else if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// TestPromptsGiveWay: prompts lie in what running texts leave of host memory: a text that needs nearly all of it is made, and pushes prompts
// out, whose end leaves first; later they are kept again.
func TestPromptsGiveWay(t *testing.T) {
	m := open(t, terrace.Options{Tiers: []string{"host=160KiB,prompts=160KiB"}})
	cached := func(prompt string, tokens int) (n int) {
		for p, err := range m.Generate(t.Context(), prompt, terrace.Settings{MaxTokens: tokens, IgnoreEnd: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if p.Use != nil {
				n = p.Use.CachedTokens
			}
		}
		return n
	}
	kept := func(prompt string, want int) { // in the background
		for range 100 {
			if cached(prompt, 4) == want {
				return
			}
		}
		t.Errorf("of %q %d tokens are never kept", prompt, want)
	}
	prompt := strings.Repeat("what they share ", 12)
	kept(prompt, 128)
	cached("long", 500) // 124 KiB of KV, beside it one record of 24 KiB
	if n := cached(prompt, 4); n != 64 {
		t.Errorf("%d tokens left of a prompt that had to give way, want 64", n)
	}
	kept(prompt, 128)
}

// TestBusy: who comes when the queue is full is told so.
func TestBusy(t *testing.T) {
	m := open(t, terrace.Options{Batch: 1, Queue: 1})
	var wg sync.WaitGroup
	busy := make(chan bool, 16)
	for range 16 {
		wg.Go(func() {
			_, err := terrace.Text(m.Generate(t.Context(), "x", terrace.Settings{MaxTokens: 300, IgnoreEnd: true}))
			if err != nil && !errors.Is(err, terrace.ErrBusy) {
				t.Error(err)
			}
			busy <- err != nil
		})
	}
	wg.Wait()
	close(busy)
	n := 0
	for b := range busy {
		if b {
			n++
		}
	}
	if n == 0 || n == 16 {
		t.Errorf("%d of 16 were turned away", n)
	}
}

// TestEmbeddings: vectors are those of the handler; a text that is too long, and a context that has ended, are said.
func TestEmbeddings(t *testing.T) {
	e, err := terrace.OpenEncoder(t.Context(), "model/bert/testdata/tiny", terrace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	vectors, err := e.Embed(t.Context(), "a cat")
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Data []struct{ Embedding []float32 }
	}
	body := post(t, open(t, terrace.Options{Encoder: e}), "/v1/embeddings", `{"input": "a cat"}`)
	if err := json.Unmarshal([]byte(body), &out); err != nil || !slices.Equal(out.Data[0].Embedding, vectors[0]) {
		t.Errorf("%.200s, want %v", body, vectors[0])
	}
	if _, err := e.Embed(t.Context(), "x", strings.Repeat("cat ", 5000)); !errors.Is(err, terrace.ErrContext) {
		t.Errorf("a long text: %v", err)
	}
	ctx := ended{t.Context(), 2} // when the first texts are computed
	if vectors, err := e.Embed(&ctx, slices.Repeat([]string{"a cat"}, 100)...); err == nil || vectors != nil {
		t.Errorf("a context that ends: %d vectors, %v", len(vectors), err)
	}
}

// TestPolicyOfAnotherModule: a program of a module of its own registers a policy, generates under it, and wraps it in one of ours.
func TestPolicyOfAnotherModule(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it builds a program")
	}
	path, err := tiny()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	rest := strings.TrimPrefix(string(mod), "module terrace\n")
	if i := strings.Index(rest, "\ntool "); i >= 0 { // of this repository's upkeep
		end := strings.Index(rest[i+1:], "\n")
		rest = rest[:i] + rest[i+1+end:]
	}
	for name, text := range map[string]string{"go.mod": fmt.Sprintf("module example.com/mine\n%s\nrequire terrace v0.0.0\n\nreplace terrace => %s\n", rest, root), "go.sum": string(sum), "main.go": consumer} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("go", "run", "-mod=mod", ".", path)
	c.Dir, c.Env = dir, append(os.Environ(), "GOFLAGS=", "GOPROXY=off", "GOWORK=off")
	out, err := c.CombinedOutput()
	if want := "newest:budget=24 keeps 24\nadakv:press=newest,budget=24 keeps 24\nok\n"; err != nil || string(out) != want {
		t.Errorf("%v\n%s, want\n%s", err, out, want)
	}
}

const consumer = `package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"terrace"
	"terrace/policy"
)

func init() {
	policy.Register(policy.Info{Name: "newest", Summary: "keeps the newest tokens", Phase: policy.PhasePrompt,
		Params: append(policy.BudgetParams("50%"), policy.Param{Name: "sinks", Default: "4", Doc: "first tokens that stay"})},
		func(a policy.Args) policy.Policy {
			sinks := a.Int("sinks", 0, 1024)
			return policy.NewScored(a, policy.Needs{}, func(l *policy.Layer, dst [][]float32) {
				for _, head := range dst {
					for i := range head {
						if head[i] = float32(i); i < sinks {
							head[i] = float32(len(head))
						}
					}
				}
			})
		})
}

func main() {
	ctx := context.Background()
	m, err := terrace.Open(ctx, os.Args[1], terrace.Options{})
	if err != nil {
		panic(err)
	}
	defer m.Close()
	for _, under := range []string{"newest:budget=24", "adakv:press=newest,budget=24"} {
		s, err := m.NewSession(under)
		if err != nil {
			panic(err)
		}
		if err := s.Read(ctx, "a prompt of more than some thirty tokens, most of which are dropped"); err != nil {
			panic(err)
		}
		kv, err := s.KV()
		if err != nil {
			panic(err)
		}
		fmt.Println(under, "keeps", kv.Kept)
	}
	if _, err := m.NewSession("newest:sinks=-1"); !errors.Is(err, policy.ErrParam) {
		panic(err)
	}
	if _, err := terrace.Text(m.Generate(ctx, "a prompt of some tokens", terrace.Settings{Policy: "newest", MaxTokens: 8})); err != nil {
		panic(err)
	}
	fmt.Println("ok")
}
`

// ended is a context that has ended when it was looked at so often.
type ended struct {
	context.Context
	left int
}

func (e *ended) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// withKeys copies a model's file with keys of its own.
func withKeys(from, to string, keys map[string]any) (err error) {
	in, err := gguf.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	for key, v := range keys {
		in.Meta().Set(key, v)
	}
	var infos []gguf.Info
	for _, t := range in.Tensors() {
		infos = append(infos, gguf.Info{Name: t.Name, Type: t.Type, Shape: t.Shape})
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w, err := gguf.NewWriter(out, in.Meta(), infos)
	if err != nil {
		return err
	}
	for _, t := range in.Tensors() {
		b, err := t.Bytes()
		if err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return w.Close()
}
