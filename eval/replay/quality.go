package replay

import "terrace/eval/metrics"

// TokenF1 is the F1 of two answers' words, where no encoder can be had. It implements shelf.Quality.
type TokenF1 struct{}

// Name implements shelf.Quality.
func (TokenF1) Name() string { return "token-f1" }

// Scores implements shelf.Quality.
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
