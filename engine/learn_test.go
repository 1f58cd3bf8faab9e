package engine

import (
	"errors"
	"testing"

	"terrace/policy"
)

// unseen is an observation of a model that nobody works out.
type unseen struct{}

func (unseen) Key() string    { return "unseen" }
func (unseen) String() string { return "what nobody sees" }

// TestLearnsOnce: what policies see of the model is worked out once, whoever asks; what nobody works out is refused by name.
func TestLearnsOnce(t *testing.T) {
	e := small(t, Options{})
	asked := 0
	defer delete(ofModel, "unseen")
	registerOfModel("unseen", func(*Engine, policy.Observation) (any, error) { asked++; return asked, nil })
	needs := policy.Needs{OfModel: []policy.Observation{unseen{}}}
	for range 2 {
		if err := e.learn(needs); err != nil {
			t.Fatal(err)
		}
	}
	if got, ok := policy.Seen[int](e.retrieval.Shape().Observed, unseen{}); !ok || got != 1 || asked != 1 {
		t.Errorf("%d, worked out %d times", got, asked)
	}
	delete(ofModel, "unseen")
	if err := small(t, Options{}).learn(needs); !errors.Is(err, policy.ErrModel) {
		t.Errorf("nobody works it out: %v", err)
	}
}
