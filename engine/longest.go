package engine

import (
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

// LongestText is how many tokens a text under the engine's policy may have, prompt and answer, where nobody else has KV: the context,
// or what host memory and the tiers below hold. A policy that drops does so once the prompt was read, so that its prompt takes what
// full attention's takes. Nothing is computed.
func (e *Engine) LongestText() (int, error) {
	s, err := e.NewSession(e.policy)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	var trouble error
	n := sort.Search(e.o.Context, func(n int) bool {
		err := s.holds(n + 1)
		if err != nil && !errors.Is(err, kvmanager.ErrBudget) {
			trouble = err
		}
		return err != nil
	})
	return n, trouble
}

// Longest is LongestText of an engine that is opened for it alone. An SSD tier lies in a folder of temporary files for that time: the place
// that the tier names is neither made nor touched. Of a drive and a device the error is ErrOption: what they hold, they say themselves.
func Longest(m *model.Model, o Options) (n int, err error) {
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
	n, err = e.LongestText()
	return n, errors.Join(err, e.Close())
}

// holds says why KV of n tokens of the empty session has no room.
func (s *Session) holds(n int) error {
	e := s.e
	if !e.retrieval.Tiered() || s.text.OnDrives() {
		if err := s.room(n); err != nil || e.o.KVBudgetBytes == 0 {
			return err
		}
		return e.kv.Room(e.kv.BytesFor(n) + e.kv.Arriving(min(n, e.o.ChunkTokens)))
	}
	if lower := tier.Lower(e.o.Tiers); len(lower) > 0 {
		if last := lower[len(lower)-1]; last.Kind == tier.SSD && int64(n)*int64(e.KVBytesPerToken()) > last.CapacityBytes {
			return kvmanager.ErrBudget
		}
	}
	p := &pass{}
	p.open(e, e.phase(true))
	rows := min(n, e.o.ChunkTokens)
	p.kv.Rows = append(p.kv.Rows, retrieval.Rows{Sequence: s.text, Reading: retrieval.Chunk, New: rows, Pos: make([]int32, rows), Len: n})
	return e.retrieval.Begin(&p.kv)
}
