package keyindex

import (
	"slices"
	"testing"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/policy"
)

// TestFollowedTokensKeepTheirCodes: where blocks leave the middle and come back, while others come for the first time and the text
// grows, every token's integers are those of an index that has held all tokens from the first build on, by position; keys of tokens
// that had integers are not read again; generated tokens that are taken back leave nothing.
func TestFollowedTokensKeepTheirCodes(t *testing.T) {
	const prompt, page = 160, 16
	for _, need := range []policy.Sketch{{Kind: policy.SketchInt8, Scale: policy.ScaleHead}, {Kind: policy.SketchInt4, Scale: policy.ScaleChannel}} {
		if !FollowsTokens(need) {
			t.Fatalf("%+v does not follow", need)
		}
		k := newKeyed(t, kvpage.F16, page, true)
		k.add(prompt)
		layer := &policy.Layer{Prompt: prompt}
		x := New(need, 1, k.dim)
		x.FollowTokens()
		h := x.Head(0)
		refresh := func() {
			t.Helper()
			v, pos := k.s.Views(0), k.s.PositionList(0, 0)
			layer.Pos = [][]int32{pos}
			h.Refresh(&v[0], pos, 1<<30, layer, 0, nil)
		}
		refresh()
		scale, all := slices.Clone(h.fixed.scale), map[int32][]int8{}
		check := func(step string) {
			t.Helper()
			refresh()
			pos, rows, got, want := k.s.PositionList(0, 0), k.rows(), make([]int8, k.dim), make([]int8, k.dim)
			if h.Tokens() != len(pos) || h.codes.Tokens() != len(pos) || !slices.Equal(h.fixed.scale, scale) {
				t.Fatalf("%s: %d and %d tokens of %d, scales %v, want %v", step, h.Tokens(), h.codes.Tokens(), len(pos), h.fixed.scale, scale)
			}
			for i, p := range pos {
				if h.codes.Get(i, got); all[p] == nil {
					kernels.Quantise(want, rows[i], scale, kvpage.MostCode(h.elem()))
					all[p] = slices.Clone(want)
				}
				if !slices.Equal(got, all[p]) {
					t.Fatalf("%s: token %d, position %d is %v, want %v", step, i, p, got, all[p])
				}
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		check("prompt")
		must(k.s.Swaps().Deactivate(0, 32, 64))
		check("two blocks left")
		k.add(7)
		must(k.s.Swaps().Deactivate(0, 96, 112))
		check("another left, the text grew")
		must(k.s.Swaps().Activate(0, 32))
		must(k.s.Swaps().Deactivate(0, 0, 16))
		check("two came back, one left")
		kept := h.followed.bytes()
		must(k.s.Swaps().Activate(0, 96))
		must(k.s.Swaps().Activate(0, 0))
		check("all are back")
		if len(h.followed.gone) != 0 || kept == 0 {
			t.Errorf("positions %v are kept as gone", h.followed.gone)
		}
		must(k.s.Truncate(prompt + 3))
		for p := int32(prompt + 3); p < prompt+7; p++ {
			delete(all, p)
		}
		k.next = prompt + 3
		check("tokens were taken back")
		k.add(20)
		check("others came in their place")
	}
}
