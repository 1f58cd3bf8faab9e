package eval

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// Model says which model a Runner runs; part of a run's identity.
type Model struct {
	Name        string `json:"name"`        // as the user gave it
	Fingerprint string `json:"fingerprint"` // of the weights file, so that another model of the same name is noticed
	Vocab       int    `json:"vocab"`       // rows of logits
	Context     int    `json:"context"`     // tokens a session may hold
	HasChat     bool   `json:"has_chat"`    // has a chat template
}

// Runner is what suites need of a model. One call at a time.
type Runner interface {
	Model() Model
	// Encode tokenises a prompt as the model expects it: with BOS where it adds one, special tokens in the text parsed.
	Encode(text string) ([]int, error)
	// EncodePlain tokenises text that goes on after other tokens: nothing added.
	EncodePlain(text string) ([]int, error)
	// EncodeChat puts text as a user's message into the chat template, ready for the answer.
	EncodeChat(text string) ([]int, error)
	// Decode turns ids into text, special tokens left out.
	Decode(ids []int) string
	// BOS is the begin-of-text token, if the model adds one.
	BOS() (id int, ok bool)
	// Prompt reads ids under each of the policies, once for all of them where they allow it, and calls use with a session
	// that stands after the prompt, in order. The session is gone when use returns. A policy that fails alone is reported
	// through use's err, with a nil session; an error from use ends Prompt.
	Prompt(ctx context.Context, ids []int, policies []string, use func(policy int, s Session, err error) error) error
	// Now is the clock that times are taken from.
	Now() time.Time
}

// Batcher is a Runner that decodes for several samples at a time.
type Batcher interface {
	Runner
	// Batch runs works, up to size of them in progress at a time, each on a Runner of its own. Only one runs at any moment: the
	// next goes on where a work waits for the model to read a token (in a Session's Generate, Force and Continue). What a work
	// gets from the model does not depend on the others, but times do: those between tokens hold the others' work. The first
	// error of a work cancels the context of all, ends Batch once they have ended, and is its error.
	Batch(ctx context.Context, size int, works iter.Seq[func(context.Context, Runner) error]) error
}

// Checker is a Runner that can tell whether its model is still the one that was opened. Runs ask before they keep an
// outcome; an error ends them.
type Checker interface {
	Check() error
}

// Session stands after a prompt, under one policy.
type Session interface {
	// Generate decodes greedily.
	Generate(ctx context.Context, o Generate) (*Generation, error)
	// Logits [vocab] after the last token read; valid until the next call.
	Logits() []float32
	// Force reads ids one at a time, as in decoding, and hands the logits [vocab] after each to each, which must copy what
	// it keeps.
	Force(ctx context.Context, ids []int, each func(i int, logits []float32) error) error
	// Continue scores a continuation without moving on: the log-probability (nats) of each id, and whether it is what
	// greedy decoding would have chosen.
	Continue(ctx context.Context, ids []int) ([]TokenScore, error)
	// Cost is what the session took so far.
	Cost() Cost
}

// TokenScore is one token of a scored continuation.
type TokenScore struct {
	LogProb float64
	Greedy  bool
}

// Generate says how to decode.
type Generate struct {
	MaxTokens int
	MinTokens int   // end tokens are not chosen before this many
	StopIDs   []int // end tokens besides the model's own
	// Stops are texts that end the answer, wherever tokens begin: it holds nothing from the first of them on.
	Stops []string
}

// String is what a prompt's hash ([HashPrompt]) is made of. Without Stops it is what it was before there were any, so that runs of
// before compare with those of today.
func (g Generate) String() string {
	s := fmt.Sprintf("{%d %d %v", g.MaxTokens, g.MinTokens, g.StopIDs)
	if len(g.Stops) > 0 {
		s += fmt.Sprintf(" %q", g.Stops)
	}
	return s + "}"
}

// Generation is a greedy answer.
type Generation struct {
	IDs    []int         // without the end token; with the tokens of the stop text that ended it
	Text   string        // of IDs, up to a stop text
	First  time.Duration // from the call to the first token
	Gaps   []time.Duration
	Finish string // stop or length
}

// Cost is what reading a prompt took.
type Cost struct {
	Prefill time.Duration    // of the prompt, the policy's own work included
	Shared  bool             // the prompt was read once for several policies
	Paced   bool             // by a drive that waits as a profile says: times are modelled
	KVBytes map[string]int64 // peak by tier, reading the prompt included
	KVHeld  map[string]int64 // most by tier since the prompt was read: what the policy leaves to answer from, sketches included
	Kept    float64          // mean number of tokens a layer and KV head holds now
	// StepKV and StepScanned are the bytes that a decode step reads, on average: K and V of the tokens attended to, and what is
	// scanned to choose them; over all layers. 0 before the first step.
	StepKV, StepScanned float64
}
