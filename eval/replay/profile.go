package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"terrace/engine/shelf"
	"terrace/eval"
	"terrace/policy"
)

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
	ID        string          `json:"id"`
	Tokens    int             `json:"tokens"`
	Bytes     int64           `json:"bytes,omitempty"` // of its whole KV as a store keeps it
	Questions int             `json:"questions"`
	Own       bool            `json:"own_questions,omitempty"` // the model made them
	Quality   shelf.Qualities `json:"quality"`                 // method → keep → mean over the questions
}

// Of finds a context; nil = it was not profiled.
func (p *Profile) Of(id string) *ContextProfile {
	i := slices.IndexFunc(p.Contexts, func(c ContextProfile) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return &p.Contexts[i]
}

// Of is the quality of a configuration; ok is false where it was not profiled.
func (c *ContextProfile) Of(of policy.Config) (q float64, ok bool) { return c.Quality.Of(of) }

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
	var p shelf.Profiling
	for _, q := range questions {
		ids, err := b.question(q.Question)
		if err != nil {
			return nil, err
		}
		p.Questions = append(p.Questions, ids)
	}
	if err := b.Reader.Profile(ctx, ids, b.Salt, &p, configs); err != nil {
		return nil, err
	}
	return &ContextProfile{ID: c.ID, Tokens: len(ids), Questions: len(p.Questions), Own: p.Own, Quality: p.Quality}, nil
}
