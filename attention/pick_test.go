package attention

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// reordered is a view with the other order of keys, of the same tokens or of the chosen ones alone, in pages of a size.
func reordered(v View, chosen []int32, tokenMajor bool, tokens int) View {
	out := View{Layout: v.Layout, RecentLayout: v.RecentLayout}
	out.Layout.TokenMajor, out.RecentLayout.TokenMajor = tokenMajor, tokenMajor
	out.Layout.Tokens, out.RecentLayout.Tokens = tokens, tokens
	at := int32(0)
	move := func(l, from kvpage.Layout, pages []Page) (moved []Page) {
		for i := range pages {
			for slot, pos := range pages[i].Pos[:pages[i].N] {
				at++
				if chosen != nil && !slices.Contains(chosen, at-1) {
					continue
				}
				if n := len(moved); n == 0 || moved[n-1].N == tokens {
					moved = append(moved, Page{Data: make([]byte, l.PageBytes())})
				}
				to := &moved[len(moved)-1]
				l.MoveFrom(to.Data, to.N, from, pages[i].Data, slot)
				to.Pos, to.N = append(to.Pos, pos), to.N+1
			}
		}
		return moved
	}
	out.Pages = move(out.Layout, v.Layout, v.Pages)
	out.Recent = move(out.RecentLayout, v.RecentLayout, v.Recent)
	return out
}

// picksOf are ways to choose from n tokens: scattered, whole tiles, whole tiles with the newest tokens, runs that cross
// tiles, one token, none.
func picksOf(rnd *rand.Rand, n int) map[string][]int32 {
	out := map[string][]int32{"one": {int32(n / 2)}, "none": {}}
	for i := range int32(n) {
		add := func(name string, when bool) {
			if when {
				out[name] = append(out[name], i)
			}
		}
		add("scattered", rnd.IntN(5) == 0)
		add("most", rnd.IntN(9) != 0)
		add("tiles", i/16%3 == 1 && int(i/16*16+16) <= n)
		add("tiles and newest", i/16%3 == 1 || int(i) >= n-n%16)
		add("runs", i/21%4 == 1)
		add("all", true)
	}
	return out
}

// TestSelectionEqualsItsTokens: invariant 4, for both key orders, windows that cut the selection, holes, and both parts of
// a view; and a dense view gives the same bits in both key orders.
func TestSelectionEqualsItsTokens(t *testing.T) {
	pool := kernels.NewPool(2)
	defer pool.Close()
	window := params(9, 3, 64)
	window.Window = 150
	capped := params(4, 1, 32)
	capped.Softcap, capped.Sinks = 3, []float32{1, -1, 0, 2}
	for _, c := range []attendCase{
		{name: "f16", p: params(9, 3, 64), k: kvpage.F16, v: kvpage.F16, tokens: 350, page: 16},
		{name: "f32 window", p: window, tokens: 400, late: 50, page: 32},
		{name: "bf16 holes", p: window, k: kvpage.BF16, v: kvpage.F16, tokens: 333, late: 20, page: 64, holes: true},
		{name: "softcap", p: capped, k: kvpage.F16, v: kvpage.BF16, tokens: 300, page: 16},
	} {
		for _, ph := range []kernels.Phase{kernels.Exact, kernels.Decode, kernels.Prefill} {
			t.Run(fmt.Sprintf("%s/%d", c.name, ph), func(t *testing.T) {
				eachPath(t, func(t *testing.T) { checkSelections(t, pool, ph, c) })
			})
		}
	}
}

func checkSelections(t *testing.T, pool *kernels.Pool, ph kernels.Phase, c attendCase) {
	const rows = 3
	base := c.make(11, rows)
	run := func(views []View, chosen [][]int32) []float32 {
		s := base
		s.Views, s.Select, s.Out = views, chosen, make([]float32, len(base.Out))
		Attend(pool, ph, c.p, []Seq{s})
		return s.Out
	}
	each := func(chosen []int32, tokenMajor bool, page int) (out []View) {
		for _, v := range base.Views {
			out = append(out, reordered(v, chosen, tokenMajor, page))
		}
		return out
	}
	same := func(what string, got, want []float32) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: differs by %.2g of the largest output", what, largestError(got, wide(want)))
		}
	}
	n := 1 << 30
	for _, v := range base.Views {
		n = min(n, v.Tokens())
	}
	dense := run(each(nil, false, 16), nil)
	same("dense, keys by token", run(each(nil, true, 16), nil), dense)
	same("dense, keys by token, larger pages", run(each(nil, true, 48), nil), dense)
	for name, chosen := range picksOf(rand.New(rand.NewPCG(5, 1)), n) {
		want := run(each(chosen, false, 16), nil)
		picks := make([][]int32, c.p.KVHeads)
		for g := range picks {
			picks[g] = chosen
		}
		same(name+" from tiles", run(base.Views, picks), want)
		if ph != kernels.Decode {
			same(name+" from tiles, of which those that nobody sees are not there", run(seenAlone(c.p.Window, &base), picks), want)
		}
		same(name+" from tiles of larger pages", run(each(nil, false, 64), picks), want)
		same(name+" by token", run(each(nil, true, 16), picks), want)
		same(name+" by token, larger pages", run(each(nil, true, 32), picks), want)
	}
}

// seenAlone are a sequence's views without the pages that no query sees.
func seenAlone(window int, s *Seq) (out []View) {
	for _, v := range s.Views {
		v.Pages = slices.Clone(v.Pages)
		for i := range v.Pages {
			if p := &v.Pages[i]; window > 0 && int(p.Pos[p.N-1]) <= int(slices.Min(s.Pos))-window {
				p.Data = nil
			}
		}
		out = append(out, v)
	}
	return out
}

// TestSelectionOfQuantisedKeys: choosing from a quantised view, and from one that holds only the tiles with chosen tokens,
// is the same (a tier fetches no others).
func TestSelectionOfQuantisedKeys(t *testing.T) {
	pool := kernels.NewPool(2)
	defer pool.Close()
	for _, c := range []attendCase{{k: kvpage.I8, v: kvpage.I4, tokens: 480, page: 16}, {k: kvpage.I3, v: kvpage.I2, tokens: 1024, page: 128}} {
		c.p, c.recent, c.late = params(6, 2, 64), kvpage.F16, 40
		for _, ph := range []kernels.Phase{kernels.Decode, kernels.Prefill} {
			eachPath(t, func(t *testing.T) {
				base := c.make(12, 2)
				few := c.make(12, 2)
				for g := range base.Views {
					var chosen, renumbered []int32
					v := &few.Views[g]
					v.Pages = nil
					for i, p := range base.Views[g].Pages {
						if i%3 != g {
							continue
						}
						for _, j := range []int32{1, 2, 3, 8, 15}[:2+i%4] {
							chosen = append(chosen, int32(c.page*i)+j)
							renumbered = append(renumbered, int32(c.page*len(v.Pages))+j)
						}
						v.Pages = append(v.Pages, p)
					}
					for i := range int32(40) {
						chosen, renumbered = append(chosen, int32(c.tokens)+i), append(renumbered, int32(c.page*len(v.Pages))+i)
					}
					base.Select, few.Select = append(base.Select, chosen), append(few.Select, renumbered)
				}
				Attend(pool, ph, c.p, []Seq{base})
				Attend(pool, ph, c.p, []Seq{few})
				if !slices.Equal(base.Out, few.Out) {
					t.Errorf("%v keys, phase %d: differs by %.2g", c.k, ph, largestError(few.Out, wide(base.Out)))
				}
			})
		}
	}
}
