//go:build clients

package serve

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/respjson"
	"github.com/anthropics/anthropic-sdk-go/shared"

	"terrace/engine"
	"terrace/model"
)

func anthropicClient(b *bench, key string) anthropic.Client {
	return anthropic.NewClient(option.WithoutEnvironmentDefaults(), option.WithBaseURL(b.http.URL), option.WithAPIKey(key), option.WithMaxRetries(0))
}

// streamed is a message as Anthropic's client puts it together from its events.
func streamed(t *testing.T, c anthropic.Client, p anthropic.MessageNewParams, opts ...option.RequestOption) (m anthropic.Message) {
	t.Helper()
	s := c.Messages.NewStreaming(t.Context(), p, opts...)
	defer s.Close()
	for s.Next() {
		if err := m.Accumulate(s.Current()); err != nil {
			t.Errorf("the client does not take %s: %v", s.Current().RawJSON(), err)
		}
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	return m
}

// TestAnthropicClient: Anthropic's Go client reads messages, whole and streamed, as the engine's texts; its errors have status,
// type, message and the request's id.
func TestAnthropicClient(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Keys: []string{clientKey}})
	c, ctx := anthropicClient(b, clientKey), t.Context()
	p := anthropic.MessageNewParams{Model: "small", MaxTokens: 20, Temperature: anthropic.Float(0), System: []anthropic.TextBlockParam{{Text: "be brief"}},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))}}
	want := b.wantOf("full", "<system>be brief\n<user>hello\n<assistant>", false, 20, model.SamplerOptions{})
	whole, err := c.Messages.New(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	count, err := c.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: "small", Messages: p.Messages, System: anthropic.MessageCountTokensParamsSystemUnion{OfString: anthropic.String("be brief")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]anthropic.Message{"whole": *whole, "streamed": streamed(t, c, p)} {
		if len(m.Content) != 1 || m.Content[0].Text != want || m.StopReason != "max_tokens" || m.Usage.OutputTokens != 20 || m.Usage.InputTokens+m.Usage.CacheReadInputTokens != count.InputTokens || m.Role != "assistant" {
			t.Errorf("%s: %+v, want %q", name, m.Content, want)
		}
	}
	p.StopSequences = []string{want[4:6]}
	if m := streamed(t, c, p); m.StopReason != "stop_sequence" || m.StopSequence != want[4:6] || !strings.HasPrefix(want, m.Content[0].Text) {
		t.Errorf("stop sequence %q: %s %q", want[4:6], m.StopReason, m.StopSequence)
	}
	wrong := anthropicClient(b, "wrong")
	_, key := wrong.Messages.New(ctx, p)
	p.TopP = anthropic.Float(7)
	_, field := c.Messages.New(ctx, p)
	events := c.Messages.NewStreaming(ctx, p)
	events.Next()
	p.Model = "none"
	_, name := c.Messages.New(ctx, p)
	for _, x := range []struct {
		err    error
		status int
		kind   anthropic.ErrorType
		says   string
	}{
		{key, http.StatusUnauthorized, "authentication_error", "no valid API key was given"},
		{field, http.StatusBadRequest, "invalid_request_error", "top_p: 7, want 0 to 1"},
		{events.Err(), http.StatusBadRequest, "invalid_request_error", "top_p: 7, want 0 to 1"},
		{name, http.StatusNotFound, "not_found_error", `there is no model \"none\"`},
	} {
		var e *anthropic.Error
		if !errors.As(x.err, &e) {
			t.Errorf("%v, want %q", x.err, x.says)
		} else if e.StatusCode != x.status || e.Type() != x.kind || !strings.Contains(e.RawJSON(), x.says) || e.RequestID == "" {
			t.Errorf("%d %q %q %s, want %d %s %s", e.StatusCode, e.Type(), e.RequestID, e.RawJSON(), x.status, x.kind, x.says)
		}
	}
}

// TestAnthropicClientTools: a forced call comes through the client's types, whole and streamed.
func TestAnthropicClientTools(t *testing.T) {
	b := newBench(t, engine.Options{Context: 512}, Options{})
	c, schema := anthropicClient(b, "none is needed"), weatherParameters(t)
	p := anthropic.MessageNewParams{Model: "small", MaxTokens: 300, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("a"))}, ToolChoice: anthropic.ToolChoiceParamOfTool("weather"),
		Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "weather", InputSchema: anthropic.ToolInputSchemaParam{Properties: schema["properties"], Required: []string{"city", "unit"},
			ExtraFields: map[string]any{"$defs": schema["$defs"], "additionalProperties": false}}}}}}
	seed := option.WithJSONSet("seed", 7)
	whole, err := c.Messages.New(t.Context(), p, seed)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]anthropic.Message{"whole": *whole, "streamed": streamed(t, c, p, seed)} {
		if len(m.Content) != 1 || m.Content[0].Name != "weather" || m.Content[0].ID == "" || !isWeather(string(m.Content[0].Input)) || m.StopReason != "tool_use" {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// Of Anthropic's published types: what of their members may be null, and what of ours stands beside them.
var (
	anthropicNulls = []string{"container", "diagnostics", "stop_details", "stop_reason", "stop_sequence", "citations", "cache_creation", "inference_geo", "output_tokens_details", "server_tool_use", "service_tier", "speed"}
	anthropicOurs  = []string{"timings", "token_ids", "prompt_token_ids"}
)

// unlike lists where a value that Anthropic's client has read departs from its published type: members that are missing, null, of
// another type or another constant, and such as the type has not.
func unlike(at string, v reflect.Value) (faults []string) {
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct {
		for i := range v.Len() {
			faults = append(faults, unlike(fmt.Sprintf("%s[%d]", at, i), v.Index(i))...)
		}
		return faults
	}
	if v.Kind() != reflect.Struct {
		return nil
	}
	if as := v.MethodByName("AsAny"); as.IsValid() {
		variant := as.Call(nil)[0]
		if variant.IsNil() {
			return []string{at + ": of no published type"}
		}
		return unlike(at, variant.Elem())
	}
	meta := v.FieldByName("JSON")
	if !meta.IsValid() {
		return nil
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		field := meta.FieldByName(f.Name)
		if name == "" || name == "-" || !field.IsValid() {
			continue
		}
		constant := f.Tag.Get("default")
		required := constant != "" || options == "required" || f.Tag.Get("api") == "required"
		have, path := field.Interface().(respjson.Field), at+"."+name
		switch raw := have.Raw(); {
		case raw == "" && required:
			faults = append(faults, path+" is missing")
		case raw == "null" && !slices.Contains(anthropicNulls, name):
			faults = append(faults, path+" is null")
		case raw != "" && raw != "null" && !have.Valid():
			faults = append(faults, path+" is "+raw)
		case constant != "" && raw != `"`+constant+`"`:
			faults = append(faults, path+" is "+raw+", want "+constant)
		case raw != "" && raw != "null":
			faults = append(faults, unlike(path, v.Field(i))...)
		}
	}
	if extra := meta.FieldByName("ExtraFields"); extra.IsValid() {
		for _, key := range extra.MapKeys() {
			if !slices.Contains(anthropicOurs, key.String()) {
				faults = append(faults, at+"."+key.String()+" is not published")
			}
		}
	}
	return faults
}

// TestAnthropicPublished: replies, events, counts and errors have all members of the types that Anthropic's client is generated
// with from the published document, and no others but ours.
func TestAnthropicPublished(t *testing.T) {
	b := newBench(t, engine.Options{Context: 512}, Options{})
	holds := func(what, text string, into interface{ UnmarshalJSON([]byte) error }) {
		t.Helper()
		if err := into.UnmarshalJSON([]byte(text)); err != nil {
			t.Errorf("%s: %s: %v", what, text, err)
		}
		for _, fault := range unlike(what, reflect.ValueOf(into).Elem()) {
			t.Errorf("%s: %s", fault, text)
		}
	}
	text := `{"messages":[{"role":"user","content":"hello"}],"max_tokens":20`
	tool := `{"messages":[{"role":"user","content":"a"}],"max_tokens":300,"seed":7,"tools":[{"name":"weather","input_schema":` + weatherTool + `}],"tool_choice":{"type":"any"}`
	seen := map[string]int{}
	for _, body := range []string{text, text + `,"return_token_ids":true`, text + `,"stop_sequences":["e"]`, tool} {
		status, out := b.post("/v1/messages", body+"}")
		if status != http.StatusOK {
			t.Fatal(status, out)
		}
		holds("message", out, &anthropic.Message{})
		_, out = b.post("/v1/messages", body+`,"stream":true}`)
		for _, frame := range framesOf(out) {
			var e anthropic.MessageStreamEventUnion
			holds("event", frame, &e)
			seen[e.Type]++
		}
	}
	if len(seen) != 6 || seen["message_start"] != 4 || seen["message_stop"] != 4 {
		t.Errorf("events %v, want all six kinds", seen)
	}
	_, out := b.post("/v1/messages/count_tokens", `{"messages":[{"role":"user","content":"hello"}]}`)
	holds("count", out, &anthropic.MessageTokensCount{})
	_, out = b.post("/v1/messages", `{"max_tokens":1}`)
	holds("error", out, &shared.ErrorResponse{})

	var broken anthropic.Message // the test tells what is wrong
	if err := broken.UnmarshalJSON([]byte(`{"id":null,"type":"massage","role":"assistant","model":"m","content":[{"type":"text","text":"a"}],"more":1}`)); err != nil {
		t.Fatal(err)
	}
	faults := strings.Join(unlike("m", reflect.ValueOf(broken)), "\n")
	for _, want := range []string{"m.id is null", `m.type is "massage"`, "m.usage is missing", "m.content[0].citations is missing", "m.more is not published"} {
		if !strings.Contains(faults, want) {
			t.Errorf("%q is not told: %s", want, faults)
		}
	}
}
