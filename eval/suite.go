package eval

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"terrace/internal/nearest"
)

// Suite makes samples and evaluates them. One method runs at any moment; with a Batcher several Evaluate are in progress, one of
// which goes on while the others wait in a Session.
type Suite interface {
	Name() string
	// Options identify the suite's own settings and data; they are part of the run's identity (encoding/json).
	Options() any
	// Samples lists every sample, in the order they are run; the same at every call. Building prompts may need the runner's
	// tokenizer.
	Samples(ctx context.Context, r Runner) ([]Sample, error)
	// Evaluate runs one sample under each policy and emits an outcome for each, in order. An error means that the policies
	// not yet emitted failed.
	Evaluate(ctx context.Context, r Runner, s Sample, policies []string, emit func(Outcome) error) error
	// Metric says how a task's outcomes become its score.
	Metric(task string) Metric
}

// Sample is one unit of work.
type Sample struct {
	Task string
	ID   string // unique within the task
	Data any    // the suite's own
}

// Outcome is one sample under one policy: a line of samples.jsonl.
type Outcome struct {
	Task   string             `json:"task"`
	ID     string             `json:"id"`
	Policy string             `json:"policy"`
	Score  *float64           `json:"score"` // nil = failed
	Weight float64            `json:"weight,omitempty"`
	Values map[string]float64 `json:"values,omitempty"`
	Labels map[string]string  `json:"labels,omitempty"` // what results are also grouped by: length, depth, context
	Pred   string             `json:"pred"`
	Row    json.RawMessage    `json:"row,omitempty"` // answers and classes, for prediction files
	// PromptHash is that of what the model read and of how it was to answer ([HashPrompt]): outcomes of two policies are compared
	// only where it is equal. Runs made before it was kept have none.
	PromptHash  string           `json:"prompt_sha256,omitempty"`
	Prompt      int              `json:"prompt_tokens,omitempty"`
	Generated   int              `json:"generated_tokens,omitempty"`
	Cut         int              `json:"cut_tokens,omitempty"` // taken out of the prompt's middle
	Finish      string           `json:"finish,omitempty"`
	TTFT        float64          `json:"ttft_ms,omitempty"`
	ITL         float64          `json:"itl_ms,omitempty"` // median gap between tokens
	Prefill     float64          `json:"prefill_ms,omitempty"`
	Shared      bool             `json:"prefill_shared,omitempty"`
	KVPeak      map[string]int64 `json:"kv_bytes_peak,omitempty"` // most at any moment, reading the prompt included
	KVHeld      map[string]int64 `json:"kv_bytes_held,omitempty"` // most while answering
	KVRead      float64          `json:"kv_bytes_read,omitempty"` // by a decode step, on average: K and V attended to, and what is scanned to choose them
	Kept        float64          `json:"tokens_kept,omitempty"`
	Modelled    bool             `json:"modelled,omitempty"` // times: a drive waits as its profile says
	Error       string           `json:"error,omitempty"`
	*ContextUse                  // of a replay; nil elsewhere
}

// ContextUse is what a request of a replay had of a kept context.
type ContextUse struct {
	Context      string  `json:"context"`
	Question     string  `json:"question"`
	QueueMS      float64 `json:"queue_ms"`
	E2EMS        float64 `json:"e2e_ms"`        // from arrival to the last token
	CachedTokens int     `json:"cached_tokens"` // of the prompt, not computed
	CacheTier    string  `json:"cache_tier"`    // the slowest that they came from; "" = none
	Method       string  `json:"method"`        // how the KV that was used was compressed: none, or a policy
	Keep         float64 `json:"keep"`          // the share of it that was kept
}

// StoreUse is what one placement did to its stores.
type StoreUse struct {
	StorePeak  map[string]int64 `json:"store_bytes_peak"`     // by tier
	ProfileS   float64          `json:"profile_s"`            // untimed work before and between requests, seconds
	Reprofiled int              `json:"reprofiled,omitempty"` // contexts that were profiled again
	Moves      int              `json:"moves"`                // contexts put somewhere
	Shrunk     int              `json:"shrunk,omitempty"`     // of them, made smaller from what was stored
	Source     string           `json:"source"`               // measured, or modelled where a tier is held to a rate
	Trouble    string           `json:"trouble,omitempty"`    // the last of the stores
	// IdleSkipped: arrivals were not waited for, the clock went on to the next.
	IdleSkipped bool `json:"idle_skipped,omitempty"`
}

// RateProbe is a trace replayed at one rate of arrivals.
type RateProbe struct {
	Speed  float64 `json:"speed"`        // divides the times of arrival; 0: each request came when the last was done
	QPS    float64 `json:"qps"`          // arrivals a second; at speed 0 what was served a second
	Score  float64 `json:"score"`        // mean quality, percent
	TTFT   float64 `json:"ttft_mean_ms"` // from arrival
	ITL    float64 `json:"itl_mean_ms"`
	E2E    float64 `json:"e2e_mean_ms"` // from arrival
	Failed int     `json:"failed"`
	Met    bool    `json:"met"` // quality and time to the first token
}

// SustainedRate is the highest rate of arrivals under which a placement keeps a mean quality and a mean time to the first token.
type SustainedRate struct {
	Floor     float64     `json:"quality_floor"`     // percent
	Objective float64     `json:"ttft_objective_ms"` // mean, from arrival
	QPS       float64     `json:"qps"`               // the highest rate that was tried and kept; 0 = none was
	Above     float64     `json:"above_qps"`         // the lowest that was tried and not kept; 0 = all were kept
	Probes    []RateProbe `json:"probes"`            // by rising speed
}

// Key identifies an outcome within a run.
type Key struct{ Task, ID, Policy string }

// Key of an outcome.
func (o *Outcome) Key() Key { return Key{o.Task, o.ID, o.Policy} }

// Failed makes the outcome of a sample that could not be run: kept and counted, not dropped.
func Failed(s Sample, policy string, err error) Outcome {
	return Outcome{Task: s.Task, ID: s.ID, Policy: policy, Error: err.Error()}
}

// Took notes costs and times. encode is what tokenising took; g may be nil.
func (o *Outcome) Took(encode time.Duration, c Cost, g *Generation) {
	o.Prefill, o.Shared, o.KVPeak, o.KVHeld, o.Kept = millis(c.Prefill), c.Shared, c.KVBytes, c.KVHeld, c.Kept
	o.KVRead, o.Modelled = c.StepKV+c.StepScanned, c.Paced
	if g == nil {
		return
	}
	o.Generated, o.Finish = len(g.IDs), g.Finish
	o.TTFT = millis(encode + c.Prefill + g.First)
	if len(g.Gaps) > 0 {
		gaps := slices.Sorted(slices.Values(g.Gaps))
		o.ITL = millis(gaps[len(gaps)/2])
	}
}

// HashPrompt identifies a sample's work: the ids of the rendered prompt, and whatever else of it decides the score (the tokens
// that are scored, how many are generated, where generation stops). 24 hexadecimal digits of a SHA-256.
func HashPrompt(ids []int, scored ...any) string {
	h := sha256.New()
	buf := make([]byte, 0, 8*len(ids)+8)
	buf = binary.LittleEndian.AppendUint64(buf, uint64(len(ids)))
	for _, id := range ids {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(id))
	}
	h.Write(buf)
	for _, s := range scored {
		fmt.Fprintf(h, "%v\x00", s)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// millis is a duration in milliseconds, to the microsecond.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Kind is how a metric is read.
type Kind string

const (
	Percent    Kind = "percent"    // mean of 0..1, shown in percent; a failed sample counts 0
	Perplexity Kind = "perplexity" // exp of the mean of nats, less is better; failed samples are left out and counted
	Nats       Kind = "nats"       // mean of nats (KL), less is better; failed samples are left out and counted
)

// Metric names a task's score.
type Metric struct {
	Name  string `json:"name"`
	Kind  Kind   `json:"kind"`
	Group string `json:"group,omitempty"` // of tasks whose mean is reported too
}

// LessIsBetter reports the direction.
func (m Metric) LessIsBetter() bool { return m.Kind != Percent }

// CheckTasks returns the tasks asked for, in the suite's order (all if none are named), or an error that lists them.
func CheckTasks(suite string, known, asked []string) ([]string, error) {
	if len(asked) == 0 {
		return known, nil
	}
	for _, t := range asked {
		if !slices.Contains(known, t) {
			return nil, fmt.Errorf("eval: suite %s has no task %q%s; there are %v: %w", suite, t, nearest.Hint(t, known), known, ErrOption)
		}
	}
	var out []string
	for _, t := range known {
		if slices.Contains(asked, t) {
			out = append(out, t)
		}
	}
	return out, nil
}
