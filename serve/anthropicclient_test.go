//go:build clients

package serve

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

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
