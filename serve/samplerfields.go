package serve

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/model"
)

// samplerFields are those of llama.cpp's and vLLM's samplers, in every generating API.
type samplerFields struct {
	MinTokens *int     `json:"min_tokens"` // end tokens, stop_token_ids and stop strings end nothing before, as vLLM has it
	StopIDs   []int    `json:"stop_token_ids"`
	TypicalP  *float64 `json:"typical_p"`
	Typical   *float64 `json:"typical"` // the same, as text-generation-webui calls it
	TopNSigma *float64 `json:"top_n_sigma"`

	XTCProbability *float64 `json:"xtc_probability"`
	XTCThreshold   *float64 `json:"xtc_threshold"`

	DRYMultiplier *float64       `json:"dry_multiplier"`
	DRYBase       *float64       `json:"dry_base"`
	DRYAllowed    *int           `json:"dry_allowed_length"`
	DRYLast       *int           `json:"dry_penalty_last_n"`
	DRYBreakers   jsontext.Value `json:"dry_sequence_breakers"` // a list, or one in a string

	Mirostat     *int     `json:"mirostat"`
	MirostatMode *int     `json:"mirostat_mode"` // the same, as text-generation-webui calls it
	MirostatTau  *float64 `json:"mirostat_tau"`
	MirostatEta  *float64 `json:"mirostat_eta"`
}

// Ranges of samplers' fields.
const (
	maxStopIDs  = 128
	maxBreakers = 64
	maxSetting  = 1000
)

// apply fills a request in.
func (f *samplerFields) apply(r *Request) error {
	o := &r.Sampler
	if len(f.StopIDs) > maxStopIDs {
		return badField("stop_token_ids", "%d ids, want at most %d", len(f.StopIDs), maxStopIDs)
	}
	r.StopIDs = f.StopIDs
	err := first(
		whole("min_tokens", f.MinTokens, 0, 1<<30, &r.MinTokens),
		typical("typical", f.Typical, &o.TypicalP), typical("typical_p", f.TypicalP, &o.TypicalP),
		number("top_n_sigma", f.TopNSigma, -maxSetting, maxSetting, &o.TopNSigma),
		number("xtc_probability", f.XTCProbability, 0, 1, &o.XTCProbability),
		number("xtc_threshold", f.XTCThreshold, 0, 1, &o.XTCThreshold),
		number("dry_multiplier", f.DRYMultiplier, 0, maxSetting, &o.DRY.Multiplier),
		number("dry_base", f.DRYBase, 0, maxSetting, &o.DRY.Base),
		whole("dry_allowed_length", f.DRYAllowed, 0, 1<<30, &o.DRY.AllowedLength),
		whole("dry_penalty_last_n", f.DRYLast, -1, 1<<30, &o.DRY.Last),
		whole("mirostat_mode", f.MirostatMode, 0, 2, &o.Mirostat), whole("mirostat", f.Mirostat, 0, 2, &o.Mirostat),
		number("mirostat_tau", f.MirostatTau, 0, maxSetting, &o.MirostatTau),
		number("mirostat_eta", f.MirostatEta, 0, maxSetting, &o.MirostatEta),
		f.breakers(r))
	if err == nil && o.DRY.Multiplier > 0 && o.DRY.Base < 1 {
		return badField("dry_base", "%g, want 1 or more", o.DRY.Base)
	}
	return err
}

// typical reads a share of which 0 would leave one token for no reason that anybody has.
func typical(name string, v *float64, into *float64) error {
	if v != nil && *v == 0 {
		return badField(name, "0, want more than 0 to 1 (1: off)")
	}
	return number(name, v, math.SmallestNonzeroFloat64, 1, into)
}

// breakers reads where repetitions end.
func (f *samplerFields) breakers(r *Request) error {
	const name = "dry_sequence_breakers"
	v := f.DRYBreakers
	if len(v) == 0 || v.Kind() == 'n' {
		return nil
	}
	var text string
	if json.Unmarshal(v, &text) == nil {
		if v = jsontext.Value(strings.TrimSpace(text)); !strings.HasPrefix(string(v), "[") {
			v = jsontext.Value("[" + string(v) + "]")
		}
	}
	var list []string
	if json.Unmarshal(v, &list) != nil {
		return badField(name, "want a list of strings")
	}
	if len(list) > maxBreakers {
		return badField(name, "%d strings, want at most %d", len(list), maxBreakers)
	}
	if i := slices.IndexFunc(list, func(s string) bool { return s == "" || len(s) > model.MaxBreakerBytes }); i >= 0 {
		return badField(name, "a string of %d bytes, want 1 to %d", len(list[i]), model.MaxBreakerBytes)
	}
	r.Breakers = list
	return nil
}

// unheeded are the samplers of a request that Mirostat does not heed, by their fields.
func unheeded(o *model.SamplerOptions) (names []string) {
	if o.Mirostat == 0 {
		return nil
	}
	for _, x := range []struct {
		name string
		on   bool
	}{
		{"top_k", o.TopK > 0}, {"top_p", o.TopP < 1}, {"min_p", o.MinP > 0}, {"typical_p", o.TypicalP > 0 && o.TypicalP < 1}, {"top_n_sigma", o.TopNSigma > 0}, {"xtc_probability", o.XTCProbability > 0},
		{"dry_multiplier", o.DRY.Multiplier > 0}, {"repeat_penalty", o.RepeatPenalty != 0 && o.RepeatPenalty != 1}, {"repetition_penalty", o.RepetitionPenalty != 0 && o.RepetitionPenalty != 1},
		{"frequency_penalty", o.FrequencyPenalty != 0}, {"presence_penalty", o.PresencePenalty != 0},
	} {
		if x.on {
			names = append(names, x.name)
		}
	}
	return names
}

// maxBreakerSets is how many sets of breakers are kept.
const maxBreakerSets = 8

// breakerSets keeps the tokens of breakers, the latest last, for requests that have the same.
type breakerSets struct {
	mu    sync.Mutex
	sets  map[string]*model.Breakers
	order []string
}

// breakersOf finds the tokens of a request's breakers, where they have an effect.
func (s *Server) breakersOf(ctx context.Context, r *Request) error {
	if r.Sampler.DRY.Multiplier == 0 || len(r.Breakers) == 0 {
		return nil
	}
	b, key := &s.breakers, fmt.Sprintf("%q", r.Breakers)
	b.mu.Lock()
	r.breakers = b.sets[key]
	b.mu.Unlock()
	if r.breakers != nil {
		return nil
	}
	err := s.busy(ctx, func() (err error) {
		r.breakers, err = NewBreakers(s.o.Tokenizer, r.Breakers)
		return err
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sets == nil {
		b.sets = map[string]*model.Breakers{}
	}
	if b.sets[key] == nil {
		b.order = append(b.order, key)
	}
	b.sets[key] = r.breakers
	if len(b.order) > maxBreakerSets {
		delete(b.sets, b.order[0])
		b.order = b.order[1:]
	}
	return nil
}
