package serve

import (
	"slices"
	"time"

	"terrace/grammar"
	"terrace/model"
	"terrace/policy"
)

// Request is a generating request in terms that every API is converted to.
type Request struct {
	Prompts    [][]int // token ids; each prompt is answered Choices times
	Choices    int     // of each prompt; 0 = 1
	MaxTokens  int     // of a choice; -1 = until the context is full, which may also cut a larger number
	MinTokens  int     // no end token, none of StopIDs and no stop string ends a choice before
	Sampler    model.SamplerOptions
	Breakers   []string        // of Sampler.DRY
	Bias       map[int]float32 // added to these ids' logits; nil = to none
	Stops      []string
	StopIDs    []int // end tokens beside the model's, which IgnoreEOS does not ignore
	IgnoreEOS  bool
	Echo       bool             // the prompt's tokens come first, as an Event
	Logprobs   int              // -1 = none; 0 = of the tokens themselves, n = and of the n likeliest
	Policy     *policy.Spec     // nil = the server's
	CacheSalt  string           // prefixes are shared within a salt only
	Machine    *grammar.Machine // what each text must be; nil = anything
	StreamText bool             // events are wanted as they come; otherwise they may be joined
	Progress   bool             // events say how much of a prompt is read

	thought  *thoughtBound   // nil = the text is none of a chat
	breakers *model.Breakers // the tokens of Breakers
	shown    map[int]bool    // control tokens whose text the answer's reader needs; nil = none
	key      string          // whose request it is; "" = no keys are asked for
	received time.Time       // for times from the client's view
}

// salt is what prefixes are stored under: those of one API key and one CacheSalt share them.
func (r *Request) salt() string {
	if r.key == "" {
		return r.CacheSalt
	}
	return r.key + "/" + r.CacheSalt
}

// slower is the slower of two tiers of a store; "" = none.
func slower(a, b string) string {
	order := []string{"", "host", "ssd", "valkey", "s3"}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

// choices is how many texts are made.
func (r *Request) choices() int { return len(r.Prompts) * max(1, r.Choices) }

// Token is one token of a choice.
type Token struct {
	ID      int
	Text    string // as far as it is whole characters with those before; "" for control tokens
	Name    string // set with Logprob, as Own: tokenizer.TokenView
	Own     []byte
	Logprob float32 // the model's own, of the natural logarithm; set where Request.Logprobs is 0 or more and it has one
	None    bool    // the token has no logprob: it is a text's first
	Top     []TopToken
}

// TopToken is one of the likeliest tokens at a place.
type TopToken struct {
	ID      int
	Name    string // tokenizer.TokenView, as Own
	Own     []byte
	Logprob float32
}

// Event is a part of an answer.
type Event struct {
	Choice int     // prompt·Choices + choice
	Text   string  // more of the choice's text
	Tokens []Token // more of its tokens; text may come later than its tokens, where it may be the beginning of a stop string
	Echo   bool    // they are the prompt's
	Read   int     // prompt tokens read so far, where Request.Progress asks and none of the answer has come; else 0
	Finish Finish  // not empty: the choice ends here
	Stop   string  // the stop string that ended it, if one did
	Cut    Cut     // what ended it before MaxTokens; "" = nothing
}

// reason is why the choice ended there, as vLLM says it (stop_reason): the stop string, or what cut the text; "" = what Finish says is all.
func (e *Event) reason() string {
	if e.Stop != "" {
		return e.Stop
	}
	return string(e.Cut)
}

// bytes is about what an event takes until it is read; 0 for a prompt's echo, which its Request bounds.
func (e *Event) bytes() int {
	if e.Echo {
		return 0
	}
	const event, token, top = 120, 112, 56 // without texts
	n := event + len(e.Text)
	for _, t := range e.Tokens {
		n += token + len(t.Text) + len(t.Name) + len(t.Own)
		for _, o := range t.Top {
			n += top + len(o.Name) + len(o.Own)
		}
	}
	return n
}

// Finish says why a choice ended.
type Finish string

// The ends of a choice.
const (
	FinishStop   Finish = "stop"       // an end token or a stop string
	FinishLength Finish = "length"     // MaxTokens, or a Cut
	FinishCalls  Finish = "tool_calls" // of OpenAI: the text was calls of tools
)

// Cut says what ended a choice before its MaxTokens (FinishLength).
type Cut string

// What cuts a text.
const (
	CutContext Cut = "context" // it is full
	CutMemory  Cut = "memory"  // alone, the text had no room for another token
)

// Usage counts a request's tokens.
type Usage struct {
	Prompt    int // each prompt once, however many choices it has
	Cached    int // of them not computed
	Generated int // end tokens included
	Thought   int // of them in thoughts
}

// Timings are those of a request; of several choices the latest.
type Timings struct {
	Queue     time.Duration // until the first prompt was begun
	Prompt    time.Duration // reading prompts, from the first part to the last
	Predicted time.Duration // from the first token to the last
	KVBytes   int64         // of all choices at their ends, and of what policies scan beside it
	CacheTier string        // slowest tier that cached tokens came from; "" = none
	// How cached tokens had been compressed, and the share of them that was kept; "" = not: the text is that of computing them.
	CacheMethod string
	CacheKeep   float64
}
