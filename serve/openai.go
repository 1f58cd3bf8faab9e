package serve

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/model"
	"terrace/policy"
)

// Ranges of fields.
const (
	maxChoices     = 8
	maxPrompts     = 64
	maxLogprobs    = 20
	maxStops       = 128
	maxStopBytes   = 1024
	maxTemperature = 2
)

// ownFields are Terrace's own, in every generating API.
type ownFields struct {
	KVPolicy       *string  `json:"kv_policy"`
	CacheSalt      *string  `json:"cache_salt"`
	IgnoreEOS      *bool    `json:"ignore_eos"`
	MinP           *float64 `json:"min_p"`
	TopK           *int     `json:"top_k"`
	RepeatPenalty  *float64 `json:"repeat_penalty"`     // of the last 64 tokens, as llama.cpp has it
	Repetition     *float64 `json:"repetition_penalty"` // of all tokens, as Hugging Face has it
	RepeatLast     *int     `json:"repeat_last_n"`      // tokens that repeat_penalty looks back at; -1 = all
	ReturnTokenIDs *bool    `json:"return_token_ids"`
	NProbs         *int     `json:"n_probs"`
	samplerFields
}

// apply fills a request in.
func (f *ownFields) apply(s *Server, r *Request) error {
	if f.KVPolicy != nil {
		spec, err := policy.Parse(*f.KVPolicy)
		if err != nil {
			return badField("kv_policy", "%s", oneLine(err))
		}
		r.Policy = spec
	}
	if f.CacheSalt != nil {
		if len(*f.CacheSalt) > 256 {
			return badField("cache_salt", "%d bytes, want at most 256", len(*f.CacheSalt))
		}
		r.CacheSalt = *f.CacheSalt
	}
	r.IgnoreEOS = is(f.IgnoreEOS)
	r.Sampler, r.Breakers = s.Sampling(), model.DefaultBreakers
	return first(
		number("min_p", f.MinP, 0, 1, &r.Sampler.MinP),
		whole("top_k", f.TopK, -1, 1<<30, &r.Sampler.TopK),
		number("repeat_penalty", f.RepeatPenalty, 0.01, 10, &r.Sampler.RepeatPenalty),
		number("repetition_penalty", f.Repetition, 0.01, 10, &r.Sampler.RepetitionPenalty),
		whole("repeat_last_n", f.RepeatLast, -1, 1<<30, &r.Sampler.PenaltyLast),
		whole("n_probs", f.NProbs, 0, maxLogprobs, &r.Logprobs),
		f.samplerFields.apply(r),
	)
}

// Sampling is how a request that says nothing is sampled: as Options.Sampling has it, else as model.DefaultSampling.
func (s *Server) Sampling() model.SamplerOptions {
	o := model.DefaultSampling()
	s.o.Sampling.Apply(&o)
	return o
}

// openAIFields are those of both of OpenAI's completion APIs.
type openAIFields struct {
	ownFields
	Model            *string        `json:"model"`
	Stream           *bool          `json:"stream"`
	StreamOptions    *streamOptions `json:"stream_options"`
	Temperature      *float64       `json:"temperature"`
	TopP             *float64       `json:"top_p"`
	N                *int           `json:"n"`
	Seed             *int64         `json:"seed"`
	Stop             *stopList      `json:"stop"`
	MaxTokens        *int           `json:"max_tokens"`
	PresencePenalty  *float64       `json:"presence_penalty"`
	FrequencyPenalty *float64       `json:"frequency_penalty"`
	LogitBias        tokenBiases    `json:"logit_bias"`
	hintFields
}

type streamOptions struct {
	IncludeUsage       *bool `json:"include_usage"`
	IncludeObfuscation *bool `json:"include_obfuscation"`    // of no effect, as the next
	Continuous         *bool `json:"continuous_usage_stats"` // vLLM's
}

// stopList is a string or a list of strings.
type stopList []string

// UnmarshalJSON implements json.Unmarshaler.
func (l *stopList) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*l = stopList{one}
		return nil
	}
	var list []string
	if json.Unmarshal(b, &list) != nil || jsontext.Value(b).Kind() != '[' {
		return badField("stop", "want a string or a list of strings")
	}
	*l = list
	return nil
}

func (l *stopList) check(name string) error {
	if l == nil {
		return nil
	}
	if len(*l) > maxStops {
		return badField(name, "%d strings, want at most %d", len(*l), maxStops)
	}
	for _, s := range *l {
		if s == "" || len(s) > maxStopBytes {
			return badField(name, "a string of %d bytes, want 1 to %d", len(s), maxStopBytes)
		}
	}
	return nil
}

// apply fills a request in.
func (f *openAIFields) apply(s *Server, r *Request) error {
	r.Logprobs, r.Choices = -1, 1
	if f.NProbs != nil && *f.NProbs == 0 {
		f.NProbs = nil
	}
	if err := f.ownFields.apply(s, r); err != nil {
		return err
	}
	r.StreamText = is(f.Stream)
	if f.StreamOptions != nil && !r.StreamText {
		return badField("stream_options", "only with stream")
	}
	if err := seed(f.Seed, &r.Sampler.Seed); err != nil {
		return err
	}
	if f.Stop != nil {
		r.Stops = *f.Stop
	}
	return first(
		number("temperature", f.Temperature, 0, maxTemperature, &r.Sampler.Temperature),
		number("top_p", f.TopP, 0, 1, &r.Sampler.TopP),
		number("presence_penalty", f.PresencePenalty, -2, 2, &r.Sampler.PresencePenalty),
		number("frequency_penalty", f.FrequencyPenalty, -2, 2, &r.Sampler.FrequencyPenalty),
		whole("n", f.N, 1, maxChoices, &r.Choices),
		f.Stop.check("stop"),
		f.LogitBias.apply(s, r),
	)
}

// maxTokens reads a number of tokens: -1 is up to the context.
func maxTokens(name string, v *int, into *int) error {
	if v != nil && *v == -1 {
		*into = -1
		return nil
	}
	return whole(name, v, 0, 1<<30, into)
}

func is(b *bool) bool { return b != nil && *b }

// seed is the one given; a random one where none is, or -1.
func seed(v *int64, into *uint64) error {
	switch {
	case v == nil || *v == -1:
		*into = rand.Uint64() >> 1
	case *v < 0:
		return badField("seed", "%d, want 0 or more, or -1 for a random one", *v)
	default:
		*into = uint64(*v)
	}
	return nil
}

func number(name string, v *float64, least, most float64, into *float64) error {
	if v == nil {
		return nil
	}
	if !(*v >= least && *v <= most) {
		return badField(name, "%g, want %g to %g", *v, least, most)
	}
	*into = *v
	return nil
}

func whole(name string, v *int, least, most int, into *int) error {
	if v == nil {
		return nil
	}
	if *v < least || *v > most {
		return badField(name, "%d, want %d to %d", *v, least, most)
	}
	*into = *v
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// served is the name of the model that a request asks for.
func (s *Server) served(name *string) (string, error) {
	if name == nil {
		return s.o.Names[0], nil
	}
	if slices.ContainsFunc(s.o.Names, func(n string) bool { return n == *name }) || slices.ContainsFunc(s.o.Patterns, func(p string) bool { return matches(p, *name) }) {
		return cut(*name, maxNameBytes), nil
	}
	return "", noModel(*name)
}

// maxNameBytes is as much of a model's name as an answer repeats.
const maxNameBytes = 256

// matches reports whether a name is one of a pattern's, in which * is any text.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, part)
		if ok = ok && i >= 0; ok {
			rest = rest[i+len(part):]
		}
	}
	return ok && strings.HasSuffix(rest, last)
}

type openAIUsage struct {
	PromptTokens     int         `json:"prompt_tokens"`
	CompletionTokens int         `json:"completion_tokens"`
	TotalTokens      int         `json:"total_tokens"`
	PromptDetails    usageDetail `json:"prompt_tokens_details"`

	CompletionDetails *thoughtDetail `json:"completion_tokens_details,omitzero"` // of thoughts, where there are any
}

type thoughtDetail struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

type usageDetail struct {
	CachedTokens int `json:"cached_tokens"`
}

func newOpenAIUsage(u Usage) *openAIUsage {
	j := &openAIUsage{PromptTokens: u.Prompt, CompletionTokens: u.Generated, TotalTokens: u.Prompt + u.Generated, PromptDetails: usageDetail{u.Cached}}
	if u.Thought > 0 {
		j.CompletionDetails = &thoughtDetail{u.Thought}
	}
	return j
}

// timingsJSON are Terrace's own, after llama.cpp's.
type timingsJSON struct {
	CacheN             int     `json:"cache_n"`
	PromptN            int     `json:"prompt_n"`
	PromptMS           float64 `json:"prompt_ms"`
	PromptPerSecond    float64 `json:"prompt_per_second"`
	PredictedN         int     `json:"predicted_n"`
	PredictedMS        float64 `json:"predicted_ms"`
	PredictedPerSecond float64 `json:"predicted_per_second"`
	QueueMS            float64 `json:"queue_ms"`
	CacheTier          string  `json:"cache_tier"`
	CacheMethod        string  `json:"cache_method,omitzero"` // how cached tokens were compressed; left out: not
	CacheKeep          float64 `json:"cache_keep,omitzero"`
	KVBytes            int64   `json:"kv_bytes"`
}

// newTimings are a reply's, once it has ended.
func newTimings(p *Reply) *timingsJSON {
	u, t := p.Usage(), p.Timings()
	j := &timingsJSON{CacheN: u.Cached, PromptN: u.Prompt - u.Cached, PromptMS: ms(t.Prompt), PredictedN: u.Generated, PredictedMS: ms(t.Predicted), QueueMS: ms(t.Queue), CacheTier: t.CacheTier, CacheMethod: t.CacheMethod, CacheKeep: t.CacheKeep, KVBytes: t.KVBytes}
	rate := func(n int, d time.Duration) float64 {
		if d <= 0 {
			return 0
		}
		return float64(n) / d.Seconds()
	}
	j.PromptPerSecond, j.PredictedPerSecond = rate(j.PromptN, t.Prompt), rate(j.PredictedN-1, t.Predicted)
	return j
}

type openAIError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	} `json:"error"`
}

func newOpenAIError(e *Error) (j openAIError) {
	j.Error.Message, j.Error.Type = e.Message, e.kind()
	if e.Param != "" {
		j.Error.Param = &e.Param
	}
	if e.Code != "" {
		j.Error.Code = &e.Code
	}
	return j
}

func writeOpenAIError(w http.ResponseWriter, e *Error) { _ = writeJSON(w, e.Status, newOpenAIError(e)) }

// begin hands a request to the loop and notes it in the exchange.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, req *Request) (*Reply, error) {
	for _, name := range unheeded(&req.Sampler) {
		tell(r.Context(), name)
	}
	reply, err := s.Do(r.Context(), req)
	if x := exchangeOf(r.Context()); x != nil && err == nil {
		x.reply = reply
	}
	return reply, err
}

// streamError ends a stream of OpenAI's that has begun with an error.
func (s *stream) fail(err error) error {
	if !s.begun || s.r.Context().Err() != nil {
		return err
	}
	if sent := s.send("", newOpenAIError(asError(err))); sent != nil {
		return sent
	}
	return err
}

// done is the end of a stream of OpenAI's.
func (s *stream) done() error { return s.write("", []byte("[DONE]")) }
