package retrieval

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"terrace/policy"
)

// Observer works out an observation of one text, layer by layer ([policy.Observation]).
type Observer interface {
	// Rows shows it rows of a layer's queries q [rows, Heads·KeyDim], after RoPE, of tokens at positions pos, once each, in the order in
	// which they are computed; the layer's keys and values of these tokens are cached.
	Rows(layer int, q []float32, pos []int32)
	// Value is what the policy is shown of a layer where it decides about it; valid until the next call.
	Value(layer int) (any, error)
	// Forget frees what the prompt needed of a layer, where no policy drops tokens while decoding.
	Forget(layer int)
}

// observers make what works observations out, by their keys.
var observers = map[string]func(t *Sequence, o policy.Observation) Observer{}

// RegisterObserver says who works out the observations of a key; called from the init of its file. A key that is taken is a bug.
func RegisterObserver(key string, begin func(t *Sequence, o policy.Observation) Observer) {
	if observers[key] != nil {
		panic("retrieval: observed twice: " + key)
	}
	observers[key] = begin
}

// observable refuses needs that nobody works out.
func observable(set *policy.Set) error {
	for _, o := range set.Needs().Observations {
		if observers[o.Key()] == nil {
			return fmt.Errorf("retrieval: policy %s wants to see %s (%s), which nobody observes; known are %s: %w", set, o, o.Key(), strings.Join(slices.Sorted(maps.Keys(observers)), ", "), policy.ErrModel)
		}
	}
	return nil
}

// beginObserving makes the observers of a text.
func (o *observer) beginObserving() {
	o.shown = nil
	for _, of := range o.needs.Observations {
		each := observers[of.Key()](o.t, of)
		o.each = append(o.each, each)
		if h, ok := each.(HiddenObserver); ok {
			o.hidden = append(o.hidden, h)
		}
		o.shown = append(o.shown, policy.Observed{Of: of})
	}
}

// Decided is Layer for a policy that decides about it, with what observers have seen.
func (t *Sequence) Decided(layer, rows int) (*policy.Layer, error) {
	l, o := t.Layer(layer, rows), &t.obs
	for i, each := range o.each {
		value, err := each.Value(layer)
		if err != nil {
			return nil, err
		}
		o.shown[i].Value = value
	}
	l.Observed = o.shown
	return l, nil
}
