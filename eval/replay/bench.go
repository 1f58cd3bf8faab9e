package replay

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/model"
	"terrace/policy"
	"terrace/tokenizer"
)

// Bench answers questions about contexts with an engine.
type Bench struct {
	Engine    *engine.Engine
	Cache     *prefixcache.Cache // of the engine, on the store of the run; nil = there is none
	Tokenizer *tokenizer.Tokenizer
	Quality   Quality
	MaxTokens int    // of an answer
	Salt      string // of contexts in the engine's store
	ids       map[string][]int
}

// spec is the policy that compresses a context to a configuration; nil = not at all.
func spec(c policy.Config) (*policy.Spec, error) {
	if c == policy.Uncompressed {
		return nil, nil
	}
	return policy.Parse(c.Method + ":ratio=" + strconv.FormatFloat(1-c.Keep, 'g', 12, 64))
}

// keepsAll is the policy under which a context is kept whole: as a compressed context from which nothing was dropped, to its last token.
// Blocks of a plain prefix would leave up to 63 tokens of each context to be computed with every question.
var keepsAll = sync.OnceValues(func() (*policy.Spec, error) { return policy.Parse("knorm:ratio=0") })

// keptAs is the policy under which a context is kept in a configuration.
func keptAs(c policy.Config) (*policy.Spec, error) {
	if c == policy.Uncompressed {
		return keepsAll()
	}
	return spec(c)
}

// keptTokens is how many of n tokens a configuration keeps in each KV head.
func keptTokens(c policy.Config, n int) int { return max(1, int(c.Keep*float64(n)+1e-9)) }

// encode gives the ids of a context, and of a question behind one, each by itself.
func (b *Bench) encode(c *Context) ([]int, error) {
	if ids := b.ids[c.ID]; ids != nil {
		return ids, nil
	}
	ids, err := b.Tokenizer.Encode(c.Text, true, false)
	if err == nil && len(ids) == 0 {
		err = fmt.Errorf("replay: context %q has no tokens", c.ID)
	}
	if b.ids == nil {
		b.ids = map[string][]int{}
	}
	b.ids[c.ID] = ids
	return ids, err
}

func (b *Bench) question(text string) ([]int, error) { return b.Tokenizer.Encode(text, false, false) }

// request is a greedy answer to ids.
func (b *Bench) request(ids []int, started time.Time) engine.Request {
	return engine.Request{IDs: ids, MaxTokens: b.MaxTokens, CutToFit: true, IsEnd: b.Tokenizer.IsEOG, Text: b.Tokenizer.NewDetokenizer(), Started: started, Sampler: model.SamplerOptions{}}
}

// base reads a context under full attention but for its last rows, which every configuration reads itself: they are forked from
// it. Close it.
func (b *Bench) base(ctx context.Context, ids []int, configs []policy.Config) (*engine.Session, error) {
	return b.read(ctx, ids[:b.shared(ids, configs)], nil)
}

// shared is how many of a context's tokens all of the configurations can have read for them.
func (b *Bench) shared(ids []int, configs []policy.Config) int {
	own := 1
	for _, c := range configs {
		under, err := spec(c)
		if err != nil || under == nil {
			continue // compress says what is wrong
		}
		rows, ok := b.Engine.OwnRows(under)
		if !ok || under.Needs().WatchQueries {
			rows = len(ids) // it has to see all
		}
		own = max(own, rows)
	}
	return max(0, len(ids)-own)
}

// read reads ids under full attention, as far as they are found in the store with what is there.
func (b *Bench) read(ctx context.Context, ids []int, found *prefixcache.Prefix) (*engine.Session, error) {
	s, err := b.Engine.NewSession(nil)
	if err != nil || len(ids) == 0 {
		return s, err
	}
	reused, err := found.Resume(ctx, s)
	if err == nil {
		err = s.Prefill(ctx, ids[reused.Tokens:], engine.PrefillHooks{})
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// compress reads the rest of a context on base under a configuration, and notes ranks for records that are made of it. Close it.
func (b *Bench) compress(ctx context.Context, base *engine.Session, ids []int, c policy.Config) (*engine.Session, error) {
	under, err := spec(c)
	if err != nil {
		return nil, err
	}
	s, err := base.Fork(under)
	if err != nil {
		return nil, err
	}
	prefixcache.NoteRanks(s)
	if err := s.Prefill(ctx, ids[base.Tokens():], engine.PrefillHooks{}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// ask answers a question in a fork of a session that has read a context.
func (b *Bench) ask(ctx context.Context, s *engine.Session, question string) (string, error) {
	ids, err := b.question(question)
	if err != nil {
		return "", err
	}
	f, err := s.Fork(nil)
	if err != nil {
		return "", err
	}
	defer f.Close()
	res, err := f.Generate(ctx, b.request(ids, time.Time{}))
	if err != nil {
		return "", err
	}
	return res.Text, nil
}

// ownQuestions has the model ask about a context that came without questions.
func (b *Bench) ownQuestions(ctx context.Context, s *engine.Session, n int) ([]Question, error) {
	ids, err := b.question("\n\nA question about the text above and nothing else.\nQuestion:")
	if err != nil {
		return nil, err
	}
	var out []Question
	for seed := range uint64(4 * n) {
		f, err := s.Fork(nil)
		if err != nil {
			return nil, err
		}
		r := b.request(ids, time.Time{})
		r.MaxTokens, r.Stops, r.Sampler = 32, []string{"\n", "?"}, model.SamplerOptions{Temperature: 0.8, TopP: 0.95, Seed: seed + 1}
		res, err := f.Generate(ctx, r)
		f.Close()
		if err != nil {
			return nil, err
		}
		q := Question{Question: "\n\nQuestion: " + strings.TrimSpace(res.Text) + "?\nAnswer:"}
		if strings.TrimSpace(res.Text) != "" && !slices.ContainsFunc(out, func(o Question) bool { return o.Question == q.Question }) {
			out = append(out, q)
		}
		if len(out) == n {
			break
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("replay: the model made no question: give the contexts questions")
	}
	return out, nil
}

func (b *Bench) askAll(ctx context.Context, of *engine.Session, questions []Question) (answers []string, err error) {
	for _, q := range questions {
		a, err := b.ask(ctx, of, q.Question)
		if err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}
