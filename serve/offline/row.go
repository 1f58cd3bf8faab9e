package offline

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/model"
	"terrace/policy"
	"terrace/serve"
)

// MaxLogprobs is the most likeliest tokens that are listed at a place.
const MaxLogprobs = 20

// Message is one of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Row is a line of the input: a prompt or messages, and what differs from the defaults.
type Row struct {
	ID   jsontext.Value `json:"id"`   // any value, given back
	Meta jsontext.Value `json:"meta"` // any value, given back

	Prompt   *string   `json:"prompt"`
	Messages []Message `json:"messages"`
	System   *string   `json:"system"` // of the chat template, before prompt

	MaxTokens        *int     `json:"max_tokens"` // -1: until the context is full
	Temperature      *float64 `json:"temperature"`
	TopK             *int     `json:"top_k"`
	TopP             *float64 `json:"top_p"`
	MinP             *float64 `json:"min_p"`
	RepeatPenalty    *float64 `json:"repeat_penalty"`
	Repetition       *float64 `json:"repetition_penalty"`
	FrequencyPenalty *float64 `json:"frequency_penalty"`
	PresencePenalty  *float64 `json:"presence_penalty"`
	TypicalP         *float64 `json:"typical_p"`
	TopNSigma        *float64 `json:"top_n_sigma"`
	XTCProbability   *float64 `json:"xtc_probability"`
	XTCThreshold     *float64 `json:"xtc_threshold"`
	DRYMultiplier    *float64 `json:"dry_multiplier"`
	DRYBase          *float64 `json:"dry_base"`
	DRYAllowed       *int     `json:"dry_allowed_length"`
	DRYLast          *int     `json:"dry_penalty_last_n"`
	Mirostat         *int     `json:"mirostat"`
	MirostatTau      *float64 `json:"mirostat_tau"`
	MirostatEta      *float64 `json:"mirostat_eta"`
	MinTokens        *int     `json:"min_tokens"`
	StopIDs          []int    `json:"stop_token_ids"`
	Seed             *int64   `json:"seed"` // -1: a random one
	Stop             []string `json:"stop"`
	IgnoreEOS        *bool    `json:"ignore_eos"`
	Policy           *string  `json:"policy"`
	Logprobs         *int     `json:"logprobs"`

	Schema  jsontext.Value `json:"json_schema"` // the text is JSON that satisfies it
	Grammar *string        `json:"grammar"`     // or one of this GBNF grammar

	batchLine
}

// batchLine is a line of OpenAI's batch files: a request to a route.
type batchLine struct {
	CustomID *string        `json:"custom_id"`
	Method   *string        `json:"method"`
	URL      *string        `json:"url"`
	Body     jsontext.Value `json:"body"`
}

// Answer is a line of the output.
type Answer struct {
	Row              int            `json:"row"`
	ID               jsontext.Value `json:"id,omitzero"`
	Meta             jsontext.Value `json:"meta,omitzero"`
	Key              string         `json:"key"` // of the row and what it was answered with
	Text             *string        `json:"text,omitzero"`
	Finish           serve.Finish   `json:"finish_reason,omitempty"`
	Cut              serve.Cut      `json:"stop_reason,omitempty"` // what ended the text before its most tokens
	PromptTokens     int            `json:"prompt_tokens,omitzero"`
	CachedTokens     int            `json:"cached_tokens,omitzero"` // of the prompt
	CompletionTokens int            `json:"completion_tokens,omitzero"`
	TokenIDs         []int          `json:"token_ids,omitzero"`
	Seed             *uint64        `json:"seed,omitzero"`
	Logprobs         []Logprob      `json:"logprobs,omitzero"`
	Error            string         `json:"error,omitempty"` // what was wrong with the row: then nothing else is there

	CustomID *string   `json:"custom_id,omitzero"` // of a line of a batch file, as the next
	Response *response `json:"response,omitzero"`
}

// response is what a route answered.
type response struct {
	Status int            `json:"status_code"`
	Body   jsontext.Value `json:"body"`
}

// Logprob is a token with its natural log probability by the model, before samplers and constraints.
type Logprob struct {
	ID      int       `json:"id"`
	Token   string    `json:"token"` // text that the token completes; bytes:\x.. where it makes no character
	Logprob float32   `json:"logprob"`
	Top     []Logprob `json:"top,omitempty"`
}

// parse reads a line strictly: UTF-8, no name twice, no name that is not known.
func parse(line []byte) (*Row, error) {
	var r Row
	if err := json.Unmarshal(line, &r, json.RejectUnknownMembers(true)); err != nil {
		return named(line), rowError(err)
	}
	if r.CustomID != nil || r.URL != nil {
		return &r, r.checkBatch()
	}
	switch {
	case r.Method != nil || r.Body != nil:
		return &r, errors.New(`"method" and "body" go with "custom_id" and "url"`)
	case r.Schema != nil && r.Grammar != nil:
		return &r, errors.New(`"json_schema" and "grammar" exclude each other`)
	case (r.Prompt == nil) == (r.Messages == nil):
		return &r, errors.New(`want "prompt" or "messages"`)
	case r.Messages != nil && r.System != nil:
		return &r, errors.New(`"system" goes with "prompt"; "messages" may hold one of role system`)
	case r.Prompt != nil && *r.Prompt == "" || r.Messages != nil && len(r.Messages) == 0:
		return &r, errors.New("the prompt is empty")
	}
	return &r, nil
}

// named is a line that is not understood, with what it is to be given back under as far as that can be read.
func named(line []byte) *Row {
	var x struct {
		ID       jsontext.Value `json:"id"`
		Meta     jsontext.Value `json:"meta"`
		CustomID *string        `json:"custom_id"`
	}
	if json.Unmarshal(line, &x) != nil {
		return &Row{}
	}
	return &Row{ID: x.ID, Meta: x.Meta, batchLine: batchLine{CustomID: x.CustomID}}
}

// batchRoutes are those that a batch file may ask.
var batchRoutes = []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"}

// checkBatch refuses a line of a batch file that asks for no route here, or for more than the route.
func (r *Row) checkBatch() error {
	switch {
	case r.CustomID == nil || *r.CustomID == "":
		return errors.New(`want "custom_id"`)
	case r.Method != nil && *r.Method != "POST":
		return fmt.Errorf("method %q, want POST", *r.Method)
	case r.URL == nil || !slices.Contains(batchRoutes, *r.URL):
		return fmt.Errorf("want \"url\", one of %s", strings.Join(batchRoutes, ", "))
	case r.Body.Kind() != '{':
		return errors.New(`"body" must be a JSON object`)
	case r.Prompt != nil || r.Messages != nil:
		return errors.New(`"prompt" and "messages" of a line with "url" go into its "body"`)
	}
	return nil
}

// Field is a field of a request's body, under one of several names: where the body has any of them, it says itself.
type Field struct {
	Names []string // the first that the route takes is written
	Value any
}

// outputTokens is what /v1/responses calls max_tokens.
const outputTokens = "max_output_tokens"

// body is that of a batch file's line with what it lacks of Fields.
func (o *Options) body(row *Row) ([]byte, error) {
	if *row.URL == "/v1/embeddings" {
		return row.Body, nil
	}
	if o.NoBody != "" {
		return nil, fmt.Errorf("%s is not for lines of a batch file: say it in their body", o.NoBody)
	}
	var has map[string]jsontext.Value
	if err := json.Unmarshal(row.Body, &has); err != nil {
		return row.Body, nil // the route says what is wrong
	}
	for _, f := range o.Fields {
		if slices.ContainsFunc(f.Names, func(name string) bool { return has[name] != nil }) {
			continue
		}
		name := f.Names[0]
		if *row.URL == "/v1/responses" && slices.Contains(f.Names, outputTokens) {
			name = outputTokens
		}
		raw, err := json.Marshal(f.Value)
		if err != nil {
			return nil, err
		}
		has[name] = raw
	}
	return json.Marshal(has)
}

// rowError says what is wrong with a line in terms of JSON.
func rowError(err error) error {
	if wrong := (*json.SemanticError)(nil); errors.As(err, &wrong) {
		field := strings.TrimPrefix(string(wrong.JSONPointer), "/")
		switch {
		case errors.Is(wrong.Err, json.ErrUnknownName):
			return fmt.Errorf("field %q is not known (what is to be carried along goes into \"meta\")", field)
		case field == "":
			return errors.New("want a JSON object")
		case wrong.GoType != nil:
			return fmt.Errorf("field %q: got %v, want a value that fits %v", field, wrong.JSONKind, wrong.GoType)
		}
		return fmt.Errorf("field %q: %w", field, wrong.Err)
	}
	return fmt.Errorf("not valid JSON: %w", err)
}

// request is what the row asks for, on top of the defaults.
func (r *Row) request(d *serve.Request) (*serve.Request, error) {
	q := *d
	q.Stops = slices.Concat(d.Stops, r.Stop)
	set(&q.MaxTokens, r.MaxTokens)
	o := &q.Sampler
	set(&o.Temperature, r.Temperature)
	set(&o.TopK, r.TopK)
	set(&o.TopP, r.TopP)
	set(&o.MinP, r.MinP)
	set(&o.RepeatPenalty, r.RepeatPenalty)
	set(&o.RepetitionPenalty, r.Repetition)
	set(&o.FrequencyPenalty, r.FrequencyPenalty)
	set(&o.PresencePenalty, r.PresencePenalty)
	set(&o.TypicalP, r.TypicalP)
	set(&o.TopNSigma, r.TopNSigma)
	set(&o.XTCProbability, r.XTCProbability)
	set(&o.XTCThreshold, r.XTCThreshold)
	set(&o.DRY.Multiplier, r.DRYMultiplier)
	set(&o.DRY.Base, r.DRYBase)
	set(&o.DRY.AllowedLength, r.DRYAllowed)
	set(&o.DRY.Last, r.DRYLast)
	set(&o.Mirostat, r.Mirostat)
	set(&o.MirostatTau, r.MirostatTau)
	set(&o.MirostatEta, r.MirostatEta)
	set(&q.MinTokens, r.MinTokens)
	q.StopIDs = slices.Concat(d.StopIDs, r.StopIDs)
	if r.Seed != nil && *r.Seed >= 0 {
		o.Seed = uint64(*r.Seed)
	}
	set(&q.IgnoreEOS, r.IgnoreEOS)
	set(&q.Logprobs, r.Logprobs)
	switch {
	case r.Seed != nil && *r.Seed < -1:
		return nil, fmt.Errorf("seed %d, want 0 or more, or -1 for a random one", *r.Seed)
	case q.MaxTokens < -1:
		return nil, fmt.Errorf("max_tokens %d, want -1 or more", q.MaxTokens)
	case q.Logprobs < -1 || q.Logprobs > MaxLogprobs:
		return nil, fmt.Errorf("logprobs %d, want 0 to %d", q.Logprobs, MaxLogprobs)
	case slices.Contains(q.Stops, ""):
		return nil, errors.New("an empty stop string")
	case q.MinTokens < 0:
		return nil, fmt.Errorf("min_tokens %d, want 0 or more", q.MinTokens)
	case r.TypicalP != nil && *r.TypicalP == 0:
		return nil, errors.New("typical_p 0, want more than 0 to 1 (1: off)")
	case o.RepeatPenalty == 0:
		return nil, errors.New("repeat_penalty 0, want more than 0 (1: none)")
	}
	if err := model.SamplerOptions.Validate(*o); err != nil {
		return nil, err
	}
	if r.Policy != nil {
		spec, err := policy.Parse(*r.Policy)
		if err != nil {
			return nil, err
		}
		q.Policy = spec
	}
	return &q, nil
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// key identifies a line and what it is answered with.
func key(settings string, line []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d\n%s\n", len(settings), settings)
	h.Write(line)
	return hex.EncodeToString(h.Sum(nil)[:8])
}
