package retrieval

import (
	"strings"
	"sync/atomic"
	"time"

	"terrace/policy"
)

// Accounts are what the texts that share a cache have done, all together.
type Accounts struct {
	scores  ScoreUse
	balance *BalanceUse
	pools   PoolUse
	reuse   ReuseUse
	timed   driveTiming
	spent   policyTimes
}

// Scores are of key scoring.
func (a *Accounts) Scores() ScoreUse { return a.scores }

// Pools are of tokens that changed place.
func (a *Accounts) Pools() PoolUse { return a.pools }

// Reuse are of groups that were read again or found.
func (a *Accounts) Reuse() ReuseUse { return a.reuse }

// Balance is how the text that was divided last is shared by host and drive; nil = none was.
func (a *Accounts) Balance() *BalanceUse { return a.balance }

// NoteRefused counts an error that Refused knows.
func (a *Accounts) NoteRefused() { a.scores.Refused++ }

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
func (a *Accounts) PolicyTime() map[string]time.Duration {
	out := make(map[string]time.Duration, len(a.spent))
	for name, ns := range a.spent {
		out[name] = time.Duration(ns.Load())
	}
	return out
}

// decided adds what a decision of the text's policy took.
func (t *Sequence) decided(begun time.Time) { t.spent.Add(int64(time.Since(begun))) }
