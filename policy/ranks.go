package policy

import (
	"cmp"
	"fmt"
	"slices"
)

// Ranker is a [PromptKeeper] that keeps the beginning of one order of the prompt's tokens, whatever its budget: a smaller choice can
// be made from a larger one, without scores and without KV ([ShrinkRanks]). [Set.Ranker] says which policies are.
type Ranker interface {
	PromptKeeper
	// NoteRanks has KeepPrompt note, from now on, where in the order what it keeps stands.
	NoteRanks()
	// Ranks are the places of the tokens of a layer and KV head that KeepPrompt kept last, in cache order; 0 is the last to go. nil:
	// all tokens stayed, or nothing was noted. They are the policy's own.
	Ranks(layer, kvHead int) []uint32
	// stay is how many tokens of an order stay: that of so many KV heads, of whatever layers, for a prompt of n tokens.
	stay(heads, n, kvBytes int) int
	// shared says which tokens have one order.
	shared() rankScope
}

// rankScope says which tokens have one order.
type rankScope uint8

const (
	rankHead  rankScope = iota // those of a KV head
	rankLayer                  // of a layer
	rankAll                    // of all layers that the policy acts on
)

// Ranker is the set's keeper where it is one and alone; nil otherwise. A policy that embeds one is none by that.
func (s *Set) Ranker() Ranker {
	if len(s.Parts) != 1 {
		return nil
	}
	if e := registry[plain(s.Parts[0].Name())]; e == nil || !e.info.Ranked {
		return nil
	}
	r, _ := s.Parts[0].(Ranker)
	return r
}

// Ranks reports whether what the specification keeps of a context can be made smaller by its ranks: not where it keeps all.
func (s *Spec) Ranks() bool {
	const long, wide = 1 << 20, 1 << 30 // so that a count and a size are less than all
	set := s.checked
	if set.Ranker() == nil {
		return false
	}
	return set.Ranker().stay(1, long, wide) < long
}

// Shrinks refuses, with [ErrParam], a specification whose choice is not the beginning of s's: another method, or another parameter than
// how much is kept.
func (s *Spec) Shrinks(to *Spec) error {
	if !s.Ranks() || len(to.terms) != 1 || to.terms[0].entry != s.terms[0].entry {
		return fmt.Errorf("policy: what %s keeps is not ranked for %s: %w", s, to, ErrParam)
	}
	a, b := s.terms[0].args, to.terms[0].args
	for _, p := range a.info.Params {
		if p.Name != "budget" && p.Name != "ratio" && a.raw(p.Name) != b.raw(p.Name) {
			return fmt.Errorf("policy: what %s keeps is not ranked for %s: %s differs: %w", s, to, p.Name, ErrParam)
		}
	}
	return nil
}

// ShrinkRanks chooses what stays where a context that from has compressed is made what to would have made of the whole prompt of n
// tokens. ranks are [layer][KVHeads][tokens], as [Ranker] gave them; a layer's are nil where the policy does not act on it. keep
// has the same shape: indices that stay, ascending; nil = all. kvBytes is [Layer].KVBytes. Errors wrap [ErrParam] where to's choice is
// no smaller part of from's, [ErrRanks] where ranks are no order.
func ShrinkRanks(from, to *Spec, ranks [][][]uint32, n, kvBytes int) (keep [][][]int, err error) {
	if err := from.Shrinks(to); err != nil {
		return nil, err
	}
	set, err := to.build(nil)
	if err != nil {
		return nil, err
	}
	r := set.Ranker()
	keep = make([][][]int, len(ranks))
	var acted []int // layers
	for layer, heads := range ranks {
		if keep[layer] = make([][]int, len(heads)); len(heads) > 0 && heads[0] != nil {
			acted = append(acted, layer)
		}
	}
	if len(acted) == 0 {
		return nil, fmt.Errorf("policy: nothing that %s keeps is ranked: %w", from, ErrRanks)
	}
	choose := func(orders [][]uint32, to [][]int) error {
		return cutRanks(orders, r.stay(len(orders), n, kvBytes), to)
	}
	var all [][]uint32
	var places [][]int
	for _, layer := range acted {
		heads := ranks[layer]
		switch r.shared() {
		case rankHead:
			for g := range heads {
				if err := choose(heads[g:g+1], keep[layer][g:g+1]); err != nil {
					return nil, err
				}
			}
		case rankLayer:
			if err := choose(heads, keep[layer]); err != nil {
				return nil, err
			}
		default:
			all, places = append(all, heads...), append(places, make([][]int, len(heads))...)
		}
	}
	if r.shared() != rankAll {
		return keep, nil
	}
	if err := choose(all, places); err != nil {
		return nil, err
	}
	for _, layer := range acted {
		at := copy(keep[layer], places)
		places = places[at:]
	}
	return keep, nil
}

// cutRanks keeps the first most of one order, whose tokens lie in some lists.
func cutRanks(lists [][]uint32, most int, keep [][]int) error {
	n := 0
	for _, list := range lists {
		n += len(list)
	}
	if most >= n {
		return fmt.Errorf("policy: %d tokens were kept, of which %d are to stay: %w", n, most, ErrParam)
	}
	seen := make([]bool, n)
	for i, list := range lists {
		keep[i] = []int{}
		for at, rank := range list {
			if int64(rank) >= int64(n) || seen[rank] {
				return fmt.Errorf("policy: rank %d of %d tokens: %w", rank, n, ErrRanks)
			}
			seen[rank] = true
			if int(rank) < most {
				keep[i] = append(keep[i], at)
			}
		}
	}
	return nil
}

// ranked is embedded by policies that are a Ranker: what they have noted.
type ranked struct {
	noting bool
	layers map[int][][]uint32 // [KVHeads][tokens]
	order  []rankedToken
}

// rankedToken is a token that stays: its key in the order, and its index among those.
type rankedToken struct {
	key uint64
	at  int32
}

// NoteRanks implements Ranker.
func (r *ranked) NoteRanks() { r.noting = true }

// Ranks implements Ranker.
func (r *ranked) Ranks(layer, kvHead int) []uint32 {
	if heads := r.layers[layer]; heads != nil {
		return heads[kvHead]
	}
	return nil
}

// forget forgets a layer's ranks.
func (r *ranked) forget(layer int) {
	if r.layers != nil {
		delete(r.layers, layer)
	}
}

// note keeps a layer's ranks.
func (r *ranked) note(layer int, heads [][]uint32) {
	if r.layers == nil {
		r.layers = map[int][][]uint32{}
	}
	r.layers[layer] = heads
}

// rank gives each of some picks its place by key, the lowest first. Keys are different.
func (r *ranked) rank(picks []int32, key func(i int32) uint64) []uint32 {
	r.order = sized(r.order, len(picks))
	for at, i := range picks {
		r.order[at] = rankedToken{key(i), int32(at)}
	}
	slices.SortFunc(r.order, func(a, b rankedToken) int { return cmp.Compare(a.key, b.key) })
	out := make([]uint32, len(picks))
	for rank, t := range r.order {
		out[t.at] = uint32(rank)
	}
	return out
}

// scoreKey orders tokens as a picker picks them: the highest score first, of equal ones the lowest index.
func scoreKey(score float32, i int32) uint64 { return uint64(^order(score))<<32 | uint64(uint32(i)) }

// rankKeyer is a Scored whose Cut does not always take the highest scores; ok is false where its picks have no order.
type rankKeyer interface {
	rankKey(row []float32) (key func(i int32) uint64, ok bool)
}

// noteRanks notes the ranks of what a scored policy p has kept of a layer.
func (s *scored) noteRanks(p Scored, l *Layer, keep *Selection) {
	heads := make([][]uint32, len(s.scores))
	for g, row := range s.scores {
		key, ok := func(i int32) uint64 { return scoreKey(row[i], i) }, true
		if k, own := p.(rankKeyer); own {
			key, ok = k.rankKey(row)
		}
		if !ok {
			s.spoil()
			return
		}
		heads[g] = s.rank(keep.Heads[g], key)
	}
	s.note(l.Index, heads)
}

// spoil forgets all ranks, and notes none any more.
func (r *ranked) spoil() { r.noting, r.layers = false, nil }

func (s *scored) shared() rankScope { return rankHead }

func (s *scored) stay(_, n, kvBytes int) int { return s.budget.Tokens(n, kvBytes) }
