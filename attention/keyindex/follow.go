package keyindex

import (
	"slices"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/policy"
)

// followed is the tokens of a head whose text's prompt has blocks that leave and come back (SlimInfer): their positions, and the
// integers of prompt tokens that have left. Scales are those of the first build, so an integer made once stands for its token, and no
// key is read again.
type followed struct {
	pos   []int32 // of the tokens that are in the index
	gone  []int32 // of those that have left, ascending
	codes []int8  // [len(gone), dim]
}

// FollowsTokens reports whether an index of a sketch can follow tokens that leave and come back, without being built again.
func FollowsTokens(need policy.Sketch) bool {
	return (need.Kind == policy.SketchInt8 || need.Kind == policy.SketchInt4) && need.Scale != policy.ScaleToken && need.Listed == 0
}

// FollowTokens has an empty index keep what it has of tokens that leave, for when they come back, where FollowsTokens.
func (x *Index) FollowTokens() {
	for i := range x.heads {
		x.heads[i].followed = &followed{}
	}
}

// forget forgets every token.
func (f *followed) forget() {
	if f != nil {
		*f = followed{}
	}
}

// bytes is the memory of what a head keeps to follow tokens.
func (f *followed) bytes() int64 {
	if f == nil {
		return 0
	}
	return int64(4*cap(f.pos) + 4*cap(f.gone) + cap(f.codes))
}

// follow brings a head whose tokens changed in the middle in line with positions pos: tokens stay by position, come back with the
// integers that they had, or are coded from their keys, which are in memory then. Of what leaves, prompt tokens are kept.
func (h *sketch) follow(pos []int32, prompt int) {
	f := h.followed
	if slices.Equal(f.pos, pos[:min(len(pos), len(f.pos))]) {
		return // nothing has changed but the end
	}
	codes, next := NewCodes(h.elem(), h.dim), followed{pos: make([]int32, 0, len(pos))}
	one, was, back := make([]int8, h.dim), 0, 0
	leave := func(p int32, code []int8) {
		if int(p) < prompt {
			next.gone, next.codes = append(next.gone, p), append(next.codes, code...)
		}
	}
	skip := func(p int32) { // what had left, and what leaves now, below a position, in order
		for {
			switch a, b := at(f.gone, back), at(f.pos, was); {
			case min(a, b) >= p:
				return
			case a < b:
				leave(a, f.codes[back*h.dim:(back+1)*h.dim])
				back++
			default:
				h.codes.Get(was, one)
				leave(b, one)
				was++
			}
		}
	}
	for i := 0; i < len(pos); i++ {
		p := pos[i]
		skip(p)
		if n := kvpage.Tile; i%n == 0 && was%n == 0 && i+n <= len(pos) && was+n <= len(f.pos) && slices.Equal(pos[i:i+n], f.pos[was:was+n]) && at(f.gone, back) > pos[i+n-1] {
			codes.putTile(i, h.codes.tile(was)) // as they lie, which is what blocks of whole pages do
			next.pos = append(next.pos, pos[i:i+n]...)
			i, was = i+n-1, was+n
			continue
		}
		switch {
		case at(f.pos, was) == p:
			h.codes.Get(was, one)
			was++
		case at(f.gone, back) == p:
			copy(one, f.codes[back*h.dim:(back+1)*h.dim])
			back++
		default:
			h.scratch.keys = sized(h.scratch.keys, h.dim)
			h.scratch.reader.Keys(h.view, i, i+1, h.scratch.keys)
			kernels.Quantise(one, h.scratch.keys, h.fixed.scale, kvpage.MostCode(h.elem()))
		}
		codes.Put(i, one)
		next.pos = append(next.pos, p)
	}
	skip(noPosition)
	h.codes, h.tokens = codes, len(pos)
	*f = next
}

// noPosition is beyond every position.
const noPosition = int32(1<<31 - 1)

// at is member i of a list of positions, noPosition past its end.
func at(list []int32, i int) int32 {
	if i < len(list) {
		return list[i]
	}
	return noPosition
}
