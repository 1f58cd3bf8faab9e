package kvmanager

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"terrace/internal/kvpage"
)

// errAccepted marks a failure after Plan.
var errAccepted = errors.New("accepted")

// prompts reads a prompt in chunks and then takes a few steps, as the engine does: plan, then layer by layer append, acquire,
// prefetch, release.
func prompts(t fataler, o Options, s *Sequence, want *reference, chunk, tokens, steps int) error {
	next := 0
	pass := func(rows, total int) error {
		if err := s.m.Plan([]Extent{{Seq: s, Rows: rows, Tokens: total}}); err != nil {
			return err
		}
		for layer := range o.Layers {
			if err := addLayer(t, o, s, want, layer, next, rows); err != nil {
				return fmt.Errorf("%w: %w", errAccepted, err)
			}
			if err := s.Acquire(layer, 0); err != nil {
				return fmt.Errorf("%w: %w", errAccepted, err)
			}
			s.Prefetch((layer+1)%o.Layers, 0)
			holdsLayer(t, o, s, want, layer)
			if err := s.Release(layer); err != nil {
				return fmt.Errorf("%w: %w", errAccepted, err)
			}
		}
		next += rows
		return nil
	}
	for next < tokens {
		if err := pass(min(chunk, tokens-next), tokens); err != nil {
			return err
		}
	}
	for range steps {
		if err := pass(1, 0); err != nil {
			return err
		}
	}
	return nil
}

// addLayer appends tokens to one layer, numbered as their positions.
func addLayer(t fataler, o Options, s *Sequence, want *reference, layer, next, n int) error {
	t.Helper()
	ids, pos := make([]int, n), make([]int32, n)
	for i := range ids {
		ids[i], pos[i] = next+i, int32(next+i)
	}
	k, v := rows(o, layer, ids)
	if err := s.Append(layer, k, v, pos); err != nil {
		return err
	}
	for h := range o.KVHeads {
		at := layer*o.KVHeads + h
		want.ids[at] = append(want.ids[at], ids...)
		want.pos[at] = append(want.pos[at], ids...)
	}
	return nil
}

// TestPlanAccepts: a pass that Plan accepts runs through to its end, in the smallest budget too; every other is refused by Plan,
// before anything is done.
func TestPlanAccepts(t *testing.T) {
	synctest.Test(t, planAccepts)
}

func planAccepts(t *testing.T) {
	for _, c := range []struct{ layers, chunk, tokens, least int }{
		{1, 7, 33, 9}, {1, 32, 100, 14}, {3, 7, 33, 11}, {3, 32, 100, 16}, {3, 100, 100, 26},
	} {
		least := 0
		for blocks := c.least + 3; blocks > c.least-3; blocks-- {
			o := shape(kvpage.F32, 0)
			o.Layers = c.layers
			o, d := onTiers(t, o, blocks)
			m := open(t, o)
			s := m.NewSequence()
			err := prompts(t, o, s, newReference(o), c.chunk, c.tokens, 20)
			s.Free()
			switch {
			case err == nil:
				least = blocks
			case !errors.Is(err, ErrBudget) || errors.Is(err, errAccepted):
				t.Errorf("%+v in %d blocks: %v", c, blocks, err)
			case least < blocks && writes(d) > 0 && c.chunk >= c.tokens:
				t.Errorf("%+v in %d blocks: refused after something was written: %v", c, blocks, err)
			}
		}
		if least != c.least {
			t.Errorf("%+v: runs in %d blocks", c, least)
		}
	}
}
