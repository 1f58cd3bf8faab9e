package replay

import (
	"terrace/eval/metrics"
	"terrace/model/bert"
)

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

// TokenF1 is the F1 of two answers' words, where no encoder can be had.
type TokenF1 struct{}

// Name implements Quality.
func (TokenF1) Name() string { return "token-f1" }

// Scores implements Quality.
func (TokenF1) Scores(pred, whole []string) ([]float64, error) {
	out := make([]float64, len(pred))
	for i := range pred {
		if pred[i] == whole[i] {
			out[i] = 1
			continue
		}
		s, err := metrics.LongBench("qasper", metrics.Row{Pred: pred[i], Answers: []string{whole[i]}})
		if err != nil {
			return nil, err
		}
		out[i] = s
	}
	return out, nil
}
