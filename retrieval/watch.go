package retrieval

import (
	"fmt"

	"terrace/policy"
)

// watcher is a policy that sees the queries of a text that is not read under it, to go on with a fork.
type watcher struct {
	spec string
	set  *policy.Set // nil once a fork has taken it
	seen int         // rows of the text, from the first on
}

// Watch shows a policy the queries of all rows of the prompt that the text reads from now on ([policy.Watcher]); a Fork
// under it goes on with what it has seen. The text must be empty. One fork takes what one call began.
func (t *Sequence) Watch(under *policy.Spec) error {
	if t.read > 0 || !t.Plain() {
		return fmt.Errorf("retrieval: policy %s is to watch a text of %d tokens under policy %s, want an empty one under full", under, t.read, t.set)
	}
	set, err := under.New(t.f.o.Shape.Model)
	if err != nil {
		return fmt.Errorf("retrieval: %w", err)
	}
	t.watchers = append(t.watchers, &watcher{spec: under.String(), set: set})
	return nil
}

// show shows the watchers a layer's queries [rows, Heads·KeyDim] of the rows at positions pos.
func (t *Sequence) show(layer int, q []float32, pos []int32) {
	for _, w := range t.watchers {
		if w.set == nil {
			continue
		}
		if int(pos[0]) == w.seen || int(pos[0])+len(pos) == w.seen { // the first layer that policies act on, and those after it
			w.seen = int(pos[0]) + len(pos)
			t.obs.watch(w.set, layer, q, pos)
		}
	}
}

// taken is the set of a policy that has watched the text, nil where none has. Its owner is the caller from now on.
func (t *Sequence) taken(under *policy.Spec) (*policy.Set, error) {
	for _, w := range t.watchers {
		if w.set == nil || w.spec != under.String() {
			continue
		}
		if w.seen != int(t.read) {
			return nil, fmt.Errorf("retrieval: policy %s has watched %d rows of a text of %d", under, w.seen, t.read)
		}
		set := w.set
		w.set = nil
		return set, nil
	}
	return nil, nil
}
