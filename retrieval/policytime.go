package retrieval

import (
	"strings"
	"sync/atomic"
	"time"

	"terrace/policy"
)

// policyTimes is how long policies have taken to decide, by their names without parameters.
type policyTimes map[string]*atomic.Int64 // nanoseconds

// of is a policy's account.
func (p policyTimes) of(set *policy.Set) *atomic.Int64 {
	var names []string
	for _, part := range set.Parts {
		names = append(names, part.Name())
	}
	name := strings.Join(names, "+")
	if p[name] == nil {
		p[name] = &atomic.Int64{}
	}
	return p[name]
}

// PolicyTime is how long policies have taken to decide what is kept of prompts, dropped, and read in steps, over all texts: by their
// names without parameters, scores and sums over the cache included, and the wait for scores that a drive makes. What a prompt
// leaves out on its way (row pruning, masks) is not in it.
func (f *Shared) PolicyTime() map[string]time.Duration {
	out := make(map[string]time.Duration, len(f.spent))
	for name, ns := range f.spent {
		out[name] = time.Duration(ns.Load())
	}
	return out
}

// decided adds what a decision of the text's policy took.
func (t *Sequence) decided(begun time.Time) { t.spent.Add(int64(time.Since(begun))) }
