package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"terrace/eval"
	"terrace/policy"
)

// ownQuestionCount is how many questions the model makes about a context that has none.
const ownQuestionCount = 4

// Profile is the quality of each configuration on each context.
type Profile struct {
	Model     string           `json:"model"`
	Metric    string           `json:"quality_metric"`
	MaxTokens int              `json:"max_tokens"`
	Seconds   float64          `json:"profile_s"`
	Contexts  []ContextProfile `json:"contexts"`
}

// ContextProfile is one context of a profile.
type ContextProfile struct {
	ID        string                        `json:"id"`
	Tokens    int                           `json:"tokens"`
	Bytes     int64                         `json:"bytes,omitempty"` // of its whole KV as a store keeps it
	Questions int                           `json:"questions"`
	Own       bool                          `json:"own_questions,omitempty"` // the model made them
	Quality   map[string]map[string]float64 `json:"quality"`                 // method → keep → mean over the questions
}

// keepText is a share kept as a key of JSON.
func keepText(keep float64) string { return strconv.FormatFloat(keep, 'g', -1, 64) }

// Of finds a context; nil = it was not profiled.
func (p *Profile) Of(id string) *ContextProfile {
	i := slices.IndexFunc(p.Contexts, func(c ContextProfile) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return &p.Contexts[i]
}

// Of is the quality of a configuration; ok is false where it was not profiled.
func (c *ContextProfile) Of(of policy.Config) (q float64, ok bool) {
	if of == policy.Uncompressed {
		return 1, true
	}
	q, ok = c.Quality[of.Method][keepText(of.Keep)]
	return q, ok
}

// ReadProfile reads what `infer store profile` wrote. Errors wrap eval.ErrData.
func ReadProfile(path string) (*Profile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("replay: %w: %w", err, eval.ErrData)
	}
	var p Profile
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("replay: %s: %w: %w", path, err, eval.ErrData)
	}
	return &p, nil
}

// Profile measures the quality of configurations on contexts, by the questions that come with each. onContext is called after
// each; nil = not.
func (b *Bench) Profile(ctx context.Context, contexts []*Context, configs []policy.Config, onContext func(done int)) (*Profile, error) {
	p, begun := &Profile{Metric: b.Quality.Name(), MaxTokens: b.MaxTokens}, time.Now()
	for i, c := range contexts {
		one, err := b.profileOne(ctx, c, c.Questions, configs)
		if err != nil {
			return nil, fmt.Errorf("replay: profile of context %q: %w", c.ID, err)
		}
		if b.Cache != nil {
			one.Bytes = b.Cache.PackedBytes(one.Tokens, nil)
		}
		p.Contexts = append(p.Contexts, *one)
		if onContext != nil {
			onContext(i + 1)
		}
	}
	p.Seconds = time.Since(begun).Seconds()
	return p, nil
}

// profileOne reads a context once, compresses it to each configuration, and asks the questions under each.
func (b *Bench) profileOne(ctx context.Context, c *Context, questions []Question, configs []policy.Config) (*ContextProfile, error) {
	ids, err := b.encode(c)
	if err != nil {
		return nil, err
	}
	head := ids[:b.shared(ids, configs)]
	base, err := b.read(ctx, head, b.Cache.Find(ctx, head, nil, b.Salt))
	if err != nil {
		return nil, err
	}
	defer base.Close()
	out := &ContextProfile{ID: c.ID, Tokens: len(ids), Quality: map[string]map[string]float64{}}
	if len(questions) == 0 {
		whole, err := b.compress(ctx, base, ids, policy.Uncompressed)
		if err != nil {
			return nil, err
		}
		questions, err = b.ownQuestions(ctx, whole, ownQuestionCount)
		whole.Close()
		if err != nil {
			return nil, err
		}
		out.Own = true
	}
	out.Questions = len(questions)
	var whole []string
	for _, config := range append([]policy.Config{policy.Uncompressed}, configs...) {
		s, err := b.compress(ctx, base, ids, config)
		if err != nil {
			return nil, err
		}
		answers, err := b.askAll(ctx, s, questions)
		s.Close()
		if err != nil {
			return nil, err
		}
		if config == policy.Uncompressed {
			whole = answers
			continue
		}
		scores, err := b.Quality.Scores(answers, whole)
		if err != nil {
			return nil, err
		}
		if out.Quality[config.Method] == nil {
			out.Quality[config.Method] = map[string]float64{}
		}
		out.Quality[config.Method][keepText(config.Keep)] = mean(scores)
	}
	return out, nil
}

func mean(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(1, len(x)))
}
