package shelf

import (
	"context"

	"terrace/engine"
	"terrace/model/bert"
	"terrace/policy"
)

// ownQuestionCount is how many questions the model makes about a context that has none.
const ownQuestionCount = 4

// Quality says how like answers are to those from the whole KV: 1 for the same text.
type Quality interface {
	Name() string
	Scores(pred, whole []string) ([]float64, error)
}

// Cosine is the cosine of an encoder's sentence embeddings, EvicPress's measure.
type Cosine struct{ Encoder *bert.Encoder }

// Name implements Quality.
func (Cosine) Name() string { return "minilm-cosine" }

// Scores implements Quality. Texts longer than the encoder takes are cut.
func (q Cosine) Scores(pred, whole []string) ([]float64, error) {
	var ids [][]int32
	for _, texts := range [][]string{pred, whole} {
		for _, text := range texts {
			ids = append(ids, q.Encoder.Cut(q.Encoder.Tokens(text)))
		}
	}
	vectors, err := q.Encoder.Embed(ids)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(pred))
	for i := range pred {
		if out[i] = 1; pred[i] != whole[i] {
			out[i] = min(1, bert.Cosine(vectors[i], vectors[len(pred)+i]))
		}
	}
	return out, nil
}

// Qualities are those of a context's configurations: method → share kept ([KeepText]) → mean over questions.
type Qualities map[string]map[string]float64

// Of is the quality of a configuration; ok is false where it was not profiled.
func (q Qualities) Of(c policy.Config) (quality float64, ok bool) {
	if c == policy.Uncompressed {
		return 1, true
	}
	quality, ok = q[c.Method][KeepText(c.Keep)]
	return quality, ok
}

func (q Qualities) set(c policy.Config, quality float64) {
	if q[c.Method] == nil {
		q[c.Method] = map[string]float64{}
	}
	q[c.Method][KeepText(c.Keep)] = quality
}

// Profiling is the profile of a context, as far as it was measured.
type Profiling struct {
	Questions [][]int // tokens behind the context's; none = the model makes some
	Own       bool    // it did
	Quality   Qualities
	whole     []string // answers from the whole KV
}

// Profile reads a context once, compresses it to each configuration that has no quality yet, and asks the questions under each. Where it is
// interrupted, what was measured stays. found is what a store has of the context.
func (r *Reader) Profile(ctx context.Context, ids []int, salt string, p *Profiling, configs []policy.Config) error {
	if p.Quality == nil {
		p.Quality = Qualities{}
	}
	head := ids[:r.Shared(ids, configs)]
	base, err := r.Base(ctx, ids, configs, r.Cache.Find(ctx, head, nil, salt))
	if err != nil {
		return err
	}
	defer base.Close()
	if p.whole == nil {
		if err := r.references(ctx, base, ids, p); err != nil {
			return err
		}
	}
	for _, config := range configs {
		if _, known := p.Quality.Of(config); known {
			continue
		}
		scores, err := r.scores(ctx, base, ids, p, config)
		if err != nil {
			return err
		}
		p.Quality.set(config, mean(scores))
	}
	return nil
}

// references answers the questions from the whole KV; where there are none the model makes some first.
func (r *Reader) references(ctx context.Context, base *engine.Session, ids []int, p *Profiling) error {
	whole, err := r.Compress(ctx, base, ids, policy.Uncompressed)
	if err != nil {
		return err
	}
	defer whole.Close()
	if len(p.Questions) == 0 {
		if p.Questions, err = r.ownQuestions(ctx, whole, ownQuestionCount); err != nil {
			return err
		}
		p.Own = true
	}
	p.whole, err = r.askAll(ctx, whole, p.Questions)
	return err
}

// scores are the qualities of the answers under a configuration.
func (r *Reader) scores(ctx context.Context, base *engine.Session, ids []int, p *Profiling, config policy.Config) ([]float64, error) {
	s, err := r.Compress(ctx, base, ids, config)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	answers, err := r.askAll(ctx, s, p.Questions)
	if err != nil {
		return nil, err
	}
	return r.Quality.Scores(answers, p.whole)
}

func mean(x []float64) float64 {
	var sum float64
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(1, len(x)))
}
