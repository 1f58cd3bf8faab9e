package engine

import (
	"errors"
	"sort"

	"terrace/engine/tier"
	"terrace/kvmanager"
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

// holds says why KV of n tokens of the empty session has no room.
func (s *Session) holds(n int) error {
	e := s.e
	if !e.retrieval.Tiered() || s.text.OnDrives() {
		if err := s.room(n); err != nil || e.o.KVBudgetBytes == 0 {
			return err
		}
		return e.kv.Room(e.kv.BytesFor(n) + e.kv.Arriving(min(n, e.o.ChunkTokens)))
	}
	for _, t := range e.o.Tiers {
		if t.Kind == tier.SSD && int64(n)*int64(e.KVBytesPerToken()) > t.CapacityBytes {
			return kvmanager.ErrBudget
		}
	}
	p := &pass{}
	p.open(e, e.phase(true))
	rows := min(n, e.o.ChunkTokens)
	p.kv.Rows = append(p.kv.Rows, retrieval.Rows{Sequence: s.text, Reading: retrieval.Chunk, New: rows, Pos: make([]int32, rows), Len: n})
	return e.retrieval.Begin(&p.kv)
}
