//go:build clients

package serve

import (
	"errors"
	"net/http"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/go-json-experiment/json"

	"terrace/engine"
	"terrace/model"
)

const clientKey = "a key of the clients' tests"

func openAIClient(b *bench, key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(b.http.URL+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
}

// each calls on for every event of a client's stream.
func each[T any](t *testing.T, s *ssestream.Stream[T], on func(v T)) {
	t.Helper()
	defer s.Close()
	for s.Next() {
		on(s.Current())
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
}

func weatherParameters(t *testing.T) (p map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(weatherTool), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// isWeather says whether arguments satisfy weatherTool.
func isWeather(arguments string) bool {
	var v struct{ City, Unit *string }
	err := json.Unmarshal([]byte(arguments), &v, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true))
	return err == nil && v.City != nil && len([]rune(*v.City)) <= 5 && v.Unit != nil && (*v.Unit == "C" || *v.Unit == "F")
}

// TestOpenAIClient: OpenAI's Go client reads completions and chat, whole and streamed, as the engine's texts with their counts.
func TestOpenAIClient(t *testing.T) {
	b := newBench(t, engine.Options{Context: 400}, Options{Keys: []string{clientKey}})
	c, ctx := openAIClient(b, clientKey), t.Context()
	want := b.want("full", "stream this", 24, model.SamplerOptions{})
	cp := openai.CompletionNewParams{Model: "small", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("stream this")}, MaxTokens: openai.Int(24), Temperature: openai.Float(0), Logprobs: openai.Int(2)}
	whole, err := c.Completions.New(ctx, cp)
	if err != nil {
		t.Fatal(err)
	}
	if x := whole.Choices[0]; x.Text != want || string(x.FinishReason) != "length" || len(x.Logprobs.TopLogprobs) != 24 || whole.Usage.CompletionTokens != 24 || whole.Model != "small" {
		t.Errorf("completion: %s", whole.RawJSON())
	}
	text, last := "", openai.Completion{}
	cp.StreamOptions.IncludeUsage = openai.Bool(true)
	each(t, c.Completions.NewStreaming(ctx, cp), func(v openai.Completion) {
		if last = v; len(v.Choices) > 0 {
			text += v.Choices[0].Text
		}
	})
	if text != want || last.Usage.TotalTokens != whole.Usage.TotalTokens {
		t.Errorf("streamed completion: %q and %+v, want %q and %+v", text, last.Usage, want, whole.Usage)
	}
	chat := openai.ChatCompletionNewParams{Model: "small", Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("be brief"), openai.UserMessage("hello")}, MaxCompletionTokens: openai.Int(20), Temperature: openai.Float(0),
		Logprobs: openai.Bool(true), TopLogprobs: openai.Int(1), N: openai.Int(2)}
	said, err := c.Chat.Completions.New(ctx, chat)
	if err != nil {
		t.Fatal(err)
	}
	want = b.wantOf("full", "<system>be brief\n<user>hello\n<assistant>", false, 20, model.SamplerOptions{})
	for _, x := range said.Choices {
		if x.Message.Content != want || x.FinishReason != "length" || len(x.Logprobs.Content) != 20 || len(x.Logprobs.Content[0].TopLogprobs) != 1 {
			t.Errorf("chat: %s, want %q", x.RawJSON(), want)
		}
	}
	acc := openai.ChatCompletionAccumulator{}
	chat.StreamOptions.IncludeUsage = openai.Bool(true)
	each(t, c.Chat.Completions.NewStreaming(ctx, chat), func(v openai.ChatCompletionChunk) {
		if !acc.AddChunk(v) {
			t.Errorf("the client does not take %s", v.RawJSON())
		}
	})
	if len(acc.Choices) != 2 || acc.Choices[0].Message.Content != want || acc.Choices[1].FinishReason != "length" || len(acc.Choices[1].Logprobs.Content) != 20 || acc.Usage.CompletionTokens != said.Usage.CompletionTokens {
		t.Errorf("streamed chat: %+v", acc.Choices)
	}
	if list, err := c.Models.List(ctx); err != nil || len(list.Data) != 2 || list.Data[0].ID != "small" {
		t.Errorf("models: %v %v", list, err)
	}
}

// TestOpenAIClientTools: forced calls come through the client's types, of chat and of responses, whole and streamed.
func TestOpenAIClientTools(t *testing.T) {
	b := newBench(t, engine.Options{Context: 512}, Options{})
	c, ctx := openAIClient(b, "none is needed"), t.Context()
	chat := openai.ChatCompletionNewParams{Model: "small", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("a")}, Seed: openai.Int(7), MaxTokens: openai.Int(300),
		Tools:      []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "weather", Parameters: weatherParameters(t)})},
		ToolChoice: openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "weather"})}
	said, err := c.Chat.Completions.New(ctx, chat)
	if err != nil {
		t.Fatal(err)
	}
	acc := openai.ChatCompletionAccumulator{}
	each(t, c.Chat.Completions.NewStreaming(ctx, chat), func(v openai.ChatCompletionChunk) {
		if !acc.AddChunk(v) {
			t.Errorf("the client does not take %s", v.RawJSON())
		}
	})
	for _, x := range []openai.ChatCompletionChoice{said.Choices[0], acc.Choices[0]} {
		if calls := x.Message.ToolCalls; x.FinishReason != "tool_calls" || len(calls) != 1 || calls[0].Function.Name != "weather" || calls[0].ID == "" || !isWeather(calls[0].Function.Arguments) {
			t.Errorf("chat: %+v", x)
		}
	}
	rp := responses.ResponseNewParams{Model: "small", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("a")}, MaxOutputTokens: openai.Int(300),
		Tools:      []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "weather", Parameters: weatherParameters(t), Strict: openai.Bool(true)}}},
		ToolChoice: responses.ResponseNewParamsToolChoiceUnion{OfFunctionTool: &responses.ToolChoiceFunctionParam{Name: "weather"}}}
	seed := option.WithJSONSet("seed", 7)
	made, err := c.Responses.New(ctx, rp, seed)
	if err != nil {
		t.Fatal(err)
	}
	var streamed responses.Response
	arguments := ""
	each(t, c.Responses.NewStreaming(ctx, rp, seed), func(v responses.ResponseStreamEventUnion) {
		switch v := v.AsAny().(type) {
		case responses.ResponseFunctionCallArgumentsDeltaEvent:
			arguments += v.Delta
		case responses.ResponseCompletedEvent:
			streamed = v.Response
		}
	})
	for _, r := range []*responses.Response{made, &streamed} {
		if r.Status != "completed" || len(r.Output) != 1 || !isWeather(r.Output[0].AsFunctionCall().Arguments) {
			t.Errorf("responses: %s", r.RawJSON())
		}
	}
	if len(streamed.Output) == 1 && arguments != streamed.Output[0].AsFunctionCall().Arguments {
		t.Errorf("responses, streamed: arguments %q", arguments)
	}
}

// TestOpenAIClientResponses: texts of responses are those of chat, whole and streamed; embeddings are read too.
func TestOpenAIClientResponses(t *testing.T) {
	b, e := embeddingBench(t)
	c, ctx := openAIClient(b, "none is needed"), t.Context()
	want := b.wantOf("full", "<system>be brief\n<user>hello\n<assistant>", false, 20, model.SamplerOptions{})
	rp := responses.ResponseNewParams{Model: "small", Instructions: openai.String("be brief"), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")}, MaxOutputTokens: openai.Int(20), Temperature: openai.Float(0)}
	made, err := c.Responses.New(ctx, rp)
	if err != nil {
		t.Fatal(err)
	}
	if made.OutputText() != want || made.Status != "incomplete" || made.IncompleteDetails.Reason != "max_output_tokens" || made.Usage.OutputTokens != 20 {
		t.Errorf("%s, want %q", made.RawJSON(), want)
	}
	text, done, numbers := "", responses.Response{}, int64(0)
	each(t, c.Responses.NewStreaming(ctx, rp), func(v responses.ResponseStreamEventUnion) {
		if v.SequenceNumber != numbers {
			t.Errorf("event %d has number %d", numbers, v.SequenceNumber)
		}
		numbers++
		switch v := v.AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			text += v.Delta
		case responses.ResponseIncompleteEvent:
			done = v.Response
		case nil:
			t.Error("the client does not know an event")
		}
	})
	if text != want || done.OutputText() != want || done.Usage.TotalTokens != made.Usage.TotalTokens {
		t.Errorf("streamed %q and %s, want %q", text, done.RawJSON(), want)
	}
	v, err := c.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: "tiny-bert", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"hello world", "the fox"}}})
	if err != nil || len(v.Data) != 2 || len(v.Data[1].Embedding) != e.Hidden || v.Usage.PromptTokens == 0 {
		t.Errorf("embeddings: %v %v", v, err)
	}
}

// TestOpenAIClientErrors: refusals are the client's errors, with status, field and message; of streams too.
func TestOpenAIClientErrors(t *testing.T) {
	b := newBench(t, engine.Options{Context: 64}, Options{Keys: []string{clientKey}})
	ctx := t.Context()
	c := openAIClient(b, clientKey)
	hello := []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")}
	chat := func(c openai.Client, p openai.ChatCompletionNewParams) error {
		p.Messages = hello
		_, err := c.Chat.Completions.New(ctx, p)
		return err
	}
	streams := c.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{Model: "small", Messages: hello, TopP: openai.Float(7)})
	streams.Next()
	_, gone := c.Responses.New(ctx, responses.ResponseNewParams{Model: "small", PreviousResponseID: openai.String("resp_1"), Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("a")}})
	for name, x := range map[string]struct {
		err                  error
		status               int
		kind, code, field, m string
	}{
		"key":       {chat(openAIClient(b, "wrong"), openai.ChatCompletionNewParams{Model: "small"}), http.StatusUnauthorized, "authentication_error", "invalid_api_key", "", "no valid API key was given"},
		"model":     {chat(c, openai.ChatCompletionNewParams{Model: "none"}), http.StatusNotFound, "not_found_error", "model_not_found", "model", `model: there is no model "none"; GET /v1/models lists what is served`},
		"field":     {chat(c, openai.ChatCompletionNewParams{Model: "small", TopP: openai.Float(7)}), http.StatusBadRequest, "invalid_request_error", "", "top_p", "top_p: 7, want 0 to 1"},
		"stream":    {streams.Err(), http.StatusBadRequest, "invalid_request_error", "", "top_p", "top_p: 7, want 0 to 1"},
		"responses": {gone, http.StatusBadRequest, "invalid_request_error", "", "previous_response_id", "previous_response_id: nothing is stored here: send the whole conversation as input"},
	} {
		var e *openai.Error
		if !errors.As(x.err, &e) {
			t.Errorf("%s: %v", name, x.err)
		} else if e.StatusCode != x.status || e.Type != x.kind || e.Code != x.code || e.Param != x.field || e.Message != x.m {
			t.Errorf("%s: %d %s", name, e.StatusCode, e.RawJSON())
		}
	}
}
