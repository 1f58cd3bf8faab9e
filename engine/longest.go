package engine

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"

	"terrace/engine/tier"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/retrieval"
)

// LongestText is how many tokens a text under the engine's policy may have where nobody else has KV, the last so many of them its answer and
// the others its prompt: the context, or what host memory and the tiers below hold. A policy that drops does so once the prompt was read, so that its
// prompt takes what full attention's takes; one that reads the prompt again needs room in the context for that. Nothing is computed.
func (e *Engine) LongestText(answer int) (int, error) {
	s, err := e.NewSession(e.policy)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	var trouble error
	fits := func(n int) bool {
		prompt := max(1, n-answer)
		err := s.holds(prompt, max(0, n-prompt-1)) // the last token is not read
		if err == nil && answer == 0 {
			err = s.holds(max(1, n-2), 1) // nor is it known where the prompt ends
		}
		if err != nil && !errors.Is(err, kvmanager.ErrBudget) && !errors.Is(err, ErrContext) {
			trouble = err
		}
		return err == nil
	}
	if fits(e.o.Context) { // a window of quantised KV that is about to let a group go may make a shorter text larger
		return e.o.Context, trouble
	}
	n := sort.Search(e.o.Context, func(n int) bool { return !fits(n + 1) })
	return n, trouble
}

// Longest is LongestText of an engine that is opened for it alone. An SSD tier lies in a folder of temporary files for that time: the place
// that the tier names is neither made nor touched. Of a drive and a device the error is ErrOption: what they hold, they say themselves.
func Longest(m *model.Model, o Options, answer int) (n int, err error) {
	o.Tiers = slices.Clone(o.Tiers)
	for i := range o.Tiers {
		t := &o.Tiers[i]
		switch t.Kind {
		case tier.Host:
		case tier.SSD:
			if t.Place, err = os.MkdirTemp("", "terrace-fit-"); err != nil {
				return 0, fmt.Errorf("engine: %w", err)
			}
			defer func() { err = errors.Join(err, os.RemoveAll(t.Place)) }()
		default:
			return 0, fmt.Errorf("engine: what fits tier %s is not known without it: want host and ssd: %w", t.Kind, ErrOption)
		}
	}
	e, err := Open(m, o)
	if err != nil {
		return 0, err
	}
	n, err = e.LongestText(answer)
	return n, errors.Join(err, e.Close())
}

// holds says why a prompt of n tokens and so many steps have no room in the empty session.
func (s *Session) holds(n, steps int) error {
	e := s.e
	if s.rereads() {
		for _, r := range s.repetitions(n, 0) {
			if n+r.rows > e.o.Context {
				return ErrContext
			}
		}
	}
	if !e.retrieval.Tiered() || s.text.OnDrives() {
		if e.o.KVBudgetBytes == 0 {
			return nil
		}
		return s.roomFor(s.course(n, steps))
	}
	if lower := tier.Lower(e.o.Tiers); len(lower) > 0 {
		if last := lower[len(lower)-1]; last.Kind == tier.SSD && int64(n+steps)*int64(e.KVBytesPerToken()) > last.CapacityBytes {
			return kvmanager.ErrBudget
		}
	}
	p := &pass{}
	p.open(e, e.phase(true))
	rows, reading := min(n, e.o.ChunkTokens), retrieval.Chunk
	if readsByLayer(s.text.Policy()) {
		reading = retrieval.Block
	}
	p.kv.Rows = append(p.kv.Rows, retrieval.Rows{Sequence: s.text, Reading: reading, New: rows, Pos: make([]int32, rows), Len: n})
	err := e.retrieval.Begin(&p.kv)
	if s.rereads() {
		for _, r := range s.repetitions(n, 0) {
			err = cmp.Or(err, e.retrieval.PlanFork(s.text, n, r.rows))
		}
	}
	if steps > 0 {
		err = cmp.Or(err, e.retrieval.PlanStep(s.text, n+steps-1))
	}
	return err
}
