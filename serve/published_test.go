package serve

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"terrace/engine"
)

// published are the schemas of replies in OpenAI's OpenAPI document; its origin stands in the file.
func published(t *testing.T) func(name string) *jsonschema.Schema {
	t.Helper()
	c, known := jsonschema.NewCompiler(), map[string]*jsonschema.Schema{}
	return func(name string) *jsonschema.Schema {
		t.Helper()
		if known[name] == nil {
			s, err := c.Compile("testdata/openai-replies.json#/$defs/" + name)
			if err != nil {
				t.Fatal(err)
			}
			known[name] = s
		}
		return known[name]
	}
}

func holdsTo(t *testing.T, s *jsonschema.Schema, what, text string) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %s: %v", what, text, err)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%s: %s: %v", what, text, err)
	}
}

// framesOf are the data of a stream's events, without the last of completions and chat.
func framesOf(body string) (frames []string) {
	for line := range strings.SplitSeq(body, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" {
			frames = append(frames, data)
		}
	}
	return frames
}

// TestPublishedShapes: every reply and every event of a stream is valid under OpenAI's published document.
func TestPublishedShapes(t *testing.T) {
	b, _ := embeddingBench(t)
	schema := published(t)
	chat, tool := `{"messages":[{"role":"user","content":"hello"}],"max_tokens":24`, `,"seed":7,"tools":[{"type":"function","function":{"name":"weather","parameters":`+weatherTool+`}}],"tool_choice":"required"`
	responses, call := `{"input":"hello","max_output_tokens":24`, `,"seed":7,"instructions":"be brief","metadata":{"a":"b"},"tools":[{"type":"function","name":"weather","description":"of a city","strict":true,"parameters":`+weatherTool+`}],"tool_choice":{"type":"function","name":"weather"}`
	form := `,"seed":7,"text":{"format":{"type":"json_schema","name":"weather","strict":true,"schema":` + weatherTool + `}}`
	for _, c := range []struct{ path, body, whole, event string }{
		{"chat/completions", chat, "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"},
		{"chat/completions", chat + `,"n":3,"logprobs":true,"top_logprobs":5,"return_token_ids":true`, "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"},
		{"chat/completions", strings.Replace(chat, "24", "300", 1) + tool, "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"},
		{"completions", `{"prompt":["a","b"],"max_tokens":9,"logprobs":5`, "CreateCompletionResponse", "CreateCompletionResponse"},
		{"responses", responses, "Response", "ResponseStreamEvent"},
		{"responses", strings.Replace(responses, "24", "300", 1) + call, "Response", "ResponseStreamEvent"},
		{"responses", strings.Replace(responses, "24", "300", 1) + form, "Response", "ResponseStreamEvent"},
		{"embeddings", `{"input":["hello","fox"]`, "CreateEmbeddingResponse", ""},
	} {
		status, text := b.post("/v1/"+c.path, c.body+"}")
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", c.path, status, text)
		}
		holdsTo(t, schema(c.whole), c.path, text)
		if c.event == "" {
			continue
		}
		_, text = b.post("/v1/"+c.path, c.body+`,"stream":true}`)
		frames := framesOf(text)
		if len(frames) < 2 {
			t.Errorf("%s: a stream of %d events: %s", c.path, len(frames), text)
		}
		for _, f := range frames {
			if c.path == "completions" { // the document has no chunks, whose reason is null until the last, as OpenAI's server sends it
				f = strings.Replace(f, `"finish_reason":null`, `"finish_reason":"stop"`, 1)
			}
			holdsTo(t, schema(c.event), c.path+", streamed", f)
		}
	}
	for path, name := range map[string]string{"/v1/models": "ListModelsResponse", "/v1/models/small": "Model", "/v1/models/none": "ErrorResponse"} {
		r, err := http.Get(b.http.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		holdsTo(t, schema(name), path, string(text))
	}
}

// TestPublishedErrors: so is every refusal, and a response that fails while it streams.
func TestPublishedErrors(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{})
	schema := published(t)
	for _, c := range [][2]string{{"/v1/completions", `{"prompt":"a","top_p":7}`}, {"/v1/chat/completions", `{`}, {"/v1/responses", `{"input":"a","model":"none"}`}, {"/v1/embeddings", `{"input":"a"}`}, {"/nothing", `{}`}} {
		status, text := b.post(c[0], c[1])
		if status < 400 {
			t.Errorf("%s: %d", c[0], status)
		}
		holdsTo(t, schema("ErrorResponse"), c[0], text)
	}
	read, steps := make(chan struct{}), 0
	b.loop.crash = func(what string) {
		if what != "step" {
			return
		}
		if steps++; steps == 4 {
			<-read
			panic("a test")
		}
	}
	r, err := http.Post(b.http.URL+"/v1/responses", "application/json", strings.NewReader(`{"input":"a","max_output_tokens":100,"temperature":0,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	close(read) // the answer has begun
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	frames := framesOf(string(text))
	if len(frames) < 3 || !strings.Contains(frames[len(frames)-1], `"response.failed"`) {
		t.Fatalf("no failure: %s", text)
	}
	for _, f := range frames {
		holdsTo(t, schema("ResponseStreamEvent"), "a failing response", f)
	}
}

// TestPublishedIsStrict: the schemas tell replies from what is none.
func TestPublishedIsStrict(t *testing.T) {
	schema := published(t)
	for text, name := range map[string]string{`{"id":"x","object":"chat.completion","created":1,"model":"m"}`: "CreateChatCompletionResponse", `{"error":{"message":"m"}}`: "ErrorResponse",
		`{"type":"response.no_such","sequence_number":0}`: "ResponseStreamEvent", `{"id":"x","object":"models","created":1,"owned_by":"y"}`: "Model"} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if schema(name).Validate(v) == nil {
			t.Errorf("%s is taken as %s", text, name)
		}
	}
}
