package shelf

import (
	"context"
	"errors"
	"strings"
	"time"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/model"
	"terrace/policy"
	"terrace/tokenizer"
)

// Reader reads contexts and answers questions about them with an engine.
type Reader struct {
	Engine    *engine.Engine
	Cache     *prefixcache.Cache // of the engine, on the store of the shelf; nil = there is none
	Tokenizer *tokenizer.Tokenizer
	Quality   Quality
	MaxTokens int // of an answer
}

// Request is a greedy answer to ids.
func (r *Reader) Request(ids []int, started time.Time) engine.Request {
	return engine.Request{IDs: ids, MaxTokens: r.MaxTokens, CutToFit: true, IsEnd: r.Tokenizer.IsEOG, Text: r.Tokenizer.NewDetokenizer(), Started: started, Sampler: model.SamplerOptions{}}
}

// Shared is how many of a context's tokens all of the configurations can have read for them.
func (r *Reader) Shared(ids []int, configs []policy.Config) int {
	own := 1
	for _, c := range configs {
		under, err := spec(c)
		if err != nil || under == nil {
			continue // Compress says what is wrong
		}
		rows, ok := r.Engine.OwnRows(under)
		if !ok || under.Watches() {
			rows = len(ids) // it has to see all
		}
		own = max(own, rows)
	}
	return max(0, len(ids)-own)
}

// Base reads a context under full attention but for its last rows, which every configuration reads itself: they are forked from
// it. found is what a store has of those tokens; nil = nothing. Close it.
func (r *Reader) Base(ctx context.Context, ids []int, configs []policy.Config, found *prefixcache.Prefix) (*engine.Session, error) {
	ids = ids[:r.Shared(ids, configs)]
	s, err := r.Engine.NewSession(nil)
	if err != nil || len(ids) == 0 {
		found.Close()
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

// Compress reads the rest of a context on base under a configuration, and notes ranks for records that are made of it. Close it.
func (r *Reader) Compress(ctx context.Context, base *engine.Session, ids []int, c policy.Config) (*engine.Session, error) {
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

// Ask answers a question in a fork of a session that has read a context.
func (r *Reader) Ask(ctx context.Context, s *engine.Session, question []int) (string, error) {
	f, err := s.Fork(nil)
	if err != nil {
		return "", err
	}
	defer f.Close()
	res, err := f.Generate(ctx, r.Request(question, time.Time{}))
	if err != nil {
		return "", err
	}
	return res.Text, nil
}

func (r *Reader) askAll(ctx context.Context, of *engine.Session, questions [][]int) (answers []string, err error) {
	for _, q := range questions {
		a, err := r.Ask(ctx, of, q)
		if err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// ownQuestions has the model ask about a context that came without questions.
func (r *Reader) ownQuestions(ctx context.Context, s *engine.Session, n int) ([][]int, error) {
	ids, err := r.Tokenizer.Encode("\n\nA question about the text above and nothing else.\nQuestion:", false, false)
	if err != nil {
		return nil, err
	}
	var out [][]int
	asked := map[string]bool{}
	for seed := range uint64(4 * n) {
		f, err := s.Fork(nil)
		if err != nil {
			return nil, err
		}
		q := r.Request(ids, time.Time{})
		q.MaxTokens, q.Stops, q.Sampler = 32, []string{"\n", "?"}, model.SamplerOptions{Temperature: 0.8, TopP: 0.95, Seed: seed + 1}
		res, err := f.Generate(ctx, q)
		f.Close()
		if err != nil {
			return nil, err
		}
		if text := strings.TrimSpace(res.Text); text != "" && !asked[text] {
			asked[text] = true
			question, err := r.Tokenizer.Encode("\n\nQuestion: "+text+"?\nAnswer:", false, false)
			if err != nil {
				return nil, err
			}
			out = append(out, question)
		}
		if len(out) == n {
			break
		}
	}
	if len(out) == 0 {
		return nil, errors.New("shelf: the model made no question: give the contexts questions")
	}
	return out, nil
}
