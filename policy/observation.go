package policy

import "slices"

// Observation names something that a policy wants to see and that [Layer] and [Model] have no field for. Its dynamic type is comparable, and its
// fields are its parameters: two that are equal are one. Who computes it registers that under its key, for a text in package retrieval
// (RegisterObserver), for a model in package engine; the policy's file declares it and the type of its value. So a policy that needs a
// new observation is one file, and the observation another.
type Observation interface {
	// Key is the name that what computes it is registered under.
	Key() string
	// String says what is seen, for people.
	String() string
}

// PromptObservation is an [Observation] of a text that takes in every row of the prompt: nobody can read a part of the prompt before
// the policy comes, and how the prompt is cut into chunks is for the engine to keep.
type PromptObservation interface {
	Observation
	OfPrompt()
}

// Observed is an observation, and what was seen.
type Observed struct {
	Of    Observation
	Value any // of the type that its declaration names
}

// Seen is what was seen of a layer ([Layer].Observed) or a model ([Model].Observed); false where nobody has looked, or where it is no T.
func Seen[T any](all []Observed, o Observation) (value T, ok bool) {
	for i := range all {
		if all[i].Of == o {
			value, ok = all[i].Value.(T)
			return value, ok
		}
	}
	return value, false
}

// ofPrompt reports whether an observation takes in every row of the prompt.
func ofPrompt(o Observation) bool {
	_, ok := o.(PromptObservation)
	return ok
}

// ObservesPrompt reports whether one of the observations takes in every row of the prompt.
func (n *Needs) ObservesPrompt() bool { return slices.ContainsFunc(n.Observations, ofPrompt) }

// unite adds observations that are not there yet.
func unite(all, more []Observation) []Observation {
	for _, o := range more {
		if !slices.Contains(all, o) {
			all = append(slices.Clip(all), o)
		}
	}
	return all
}
