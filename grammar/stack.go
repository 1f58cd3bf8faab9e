package grammar

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// frame is where a thread goes on when what it is in has ended.
type frame struct {
	pc int32
	n  int32 // of a repetition: how often
	up *stacks
}

// stacks is a set of stacks, by their top frames; equal sets are one, as long as the table that made them lives. bottom has no
// frames: what ends there is a text of the language.
type stacks struct {
	frames []frame
	id     uint64

	round   uint64 // of the closure that callers belong to
	callers *callers
}

// table makes stacks unique.
type table struct {
	known  map[string]*stacks
	unions map[[2]uint64]*stacks
	bottom *stacks
	ids    *uint64 // over all tables of a machine
	key    []byte
	spend  func(work, bytes int) // Machine.spend
}

func newTable(ids *uint64, bottom *stacks, spend func(work, bytes int)) *table {
	return &table{known: map[string]*stacks{}, unions: map[[2]uint64]*stacks{}, bottom: bottom, ids: ids, spend: spend}
}

// set is the set of some frames; those that go on at the same place become one. It takes over the slice.
func (t *table) set(frames []frame) *stacks {
	if len(frames) > 1 {
		slices.SortFunc(frames, func(a, b frame) int {
			switch {
			case a.pc != b.pc:
				return cmp.Compare(a.pc, b.pc)
			case a.n != b.n:
				return cmp.Compare(a.n, b.n)
			}
			return cmp.Compare(a.up.id, b.up.id)
		})
	}
	out := frames[:0]
	for _, f := range frames {
		if n := len(out); n > 0 && out[n-1].pc == f.pc && out[n-1].n == f.n {
			out[n-1].up = t.union(out[n-1].up, f.up)
			continue
		}
		out = append(out, f)
	}
	key := t.key[:0]
	for _, f := range out {
		key = binary.LittleEndian.AppendUint32(key, uint32(f.pc))
		key = binary.LittleEndian.AppendUint32(key, uint32(f.n))
		key = binary.LittleEndian.AppendUint64(key, f.up.id)
	}
	t.key = key
	if s, ok := t.known[string(key)]; ok {
		return s
	}
	t.spend(len(out), stackBytes+2*frameBytes*len(out))
	*t.ids++
	s := &stacks{frames: slices.Clone(out), id: *t.ids}
	t.known[string(key)] = s
	return s
}

// union is the set of the stacks of both.
func (t *table) union(a, b *stacks) *stacks {
	if a == b {
		return a
	}
	if a.id > b.id {
		a, b = b, a
	}
	key := [2]uint64{a.id, b.id}
	if s, ok := t.unions[key]; ok {
		return s
	}
	t.spend(1+len(a.frames)+len(b.frames), frameBytes)
	frames := slices.Concat(a.frames, b.frames)
	if a == t.bottom || b == t.bottom {
		frames = append(frames, frame{pc: endPC, up: t.bottom})
	}
	s := t.set(frames)
	t.unions[key] = s
	return s
}

// endPC is the instruction at which a rule ends.
const endPC = int32(1)
