package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/x448/float16"

	"terrace/internal/kernels"
)

// refHillinfer scores with plain loops: keys in integers by the largest magnitude of the prompt, the group's queries added,
// one scale for all of them, one integer a token, divided and rounded to half precision, ties to the earlier token.
func refHillinfer(s *scene, alpha float64) []int32 {
	group, n := s.heads/s.kvHeads, len(s.pos[0])-1
	u := make([]float64, s.kvHeads*s.dim)
	scales := make([][]float32, s.kvHeads)
	for g := range scales {
		scales[g] = make([]float32, s.dim)
		s.KeyScales(g, scales[g])
	}
	var top float64
	for g := range s.kvHeads {
		for d := range s.dim {
			var sum float32
			for h := g * group; h < (g+1)*group; h++ {
				sum += s.query(h, len(s.q)-1)[d]
			}
			u[g*s.dim+d] = float64(sum * scales[g][d])
			top = max(top, math.Abs(u[g*s.dim+d]))
		}
	}
	shift := 0
	for 127*127*s.kvHeads*s.dim>>shift > 65504 {
		shift++
	}
	type token struct {
		index int32
		score float32
	}
	var tokens []token
	for i := range n {
		sum := 0
		for g := range s.kvHeads {
			for d, v := range s.key(g, int(s.pos[g][i])) {
				k := math.RoundToEven(float64(v / scales[g][d]))
				k = max(min(k, s.levels), -s.levels)
				q := math.RoundToEven(float64(float32(u[g*s.dim+d]) * (127 / float32(top))))
				sum += int(q) * int(k)
			}
		}
		tokens = append(tokens, token{int32(i), float16.Fromfloat32(float32(sum) / float32(int(1)<<shift)).Float32()})
	}
	sort.SliceStable(tokens, func(a, b int) bool { return tokens[a].score > tokens[b].score })
	var out []int32
	for _, t := range tokens[:int(math.Ceil(alpha*float64(n)-1e-9))] {
		out = append(out, t.index)
	}
	slices.Sort(out)
	return append(out, int32(n))
}

func TestHillinferAgainstReference(t *testing.T) {
	for seed := range uint64(8) {
		for _, bits := range []string{"int8", "int4"} {
			s := randomScene(seed, 150, 4, 2, 24)
			s.fill()
			s.levels, s.perChannel = 127, false
			if bits == "int4" {
				s.levels, s.perChannel = 7, true
			}
			got := selected(t, s, "hillinfer:alpha=0.13,score="+bits, nil)
			want := refHillinfer(s, 0.13)
			for g := range s.kvHeads {
				equalIndices(t, got.Heads[g], want, fmt.Sprintf("%s seed %d head %d", bits, seed, g))
			}
		}
	}
}

// TestHillinferPlacement scores the same layer in one place, and split at random over two places that answer in blocks in
// any order: the selection is the same.
func TestHillinferPlacement(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := randomScene(seed, 300, 4, 2, 16)
		s.fill()
		recent := int(seed % 2 * 30)
		set := mustSet(t, fmt.Sprintf("hillinfer:alpha=0.2,recent_in_selection=%v", recent > 0), s)
		l := s.layer(0, 1)
		var here, there Selection
		set.Selector.Select(l, &here)
		scoring := set.Selector.(TokenScoring)
		var q TokenQuery
		if !scoring.Question(l, &q) {
			t.Fatal("no question")
		}
		scores := make([]float32, 300)
		sums := make([]int32, 300)
		for g := range 2 {
			s.Products(g, q.Int8[g*16:(g+1)*16], sums)
		}
		for i, x := range sums {
			scores[i] = float32(x)
		}
		RoundScores(scores, q.Shift)
		mine := make([]float32, 300)
		if scoring.Score(l, &q, mine); !slices.Equal(mine, scores) {
			t.Fatal("the policy's own scores differ from the integer sums")
		}
		scoring.Choose(l, scores, &there)
		equalIndices(t, there.Heads[0], here.Heads[0], "scores from elsewhere")
		k, below, all := scoring.Wanted(l)
		if k != 60-recent || below != 299-recent || all {
			t.Fatalf("%d of %d wanted", k, below)
		}
		var m Merger
		m.Reset(k)
		blocks := r.Perm(below)
		for from := 0; from < below; from += 16 {
			var pos []int32
			var part []float32
			for _, i := range blocks[from:min(from+16, below)] {
				pos, part = append(pos, int32(i)), append(part, scores[i])
			}
			m.Add(pos, part)
		}
		scoring.Accept(l, m.Best(nil), &there)
		equalIndices(t, there.Heads[0], here.Heads[0], "merged from blocks")
		equalIndices(t, there.Heads[1], here.Heads[1], "merged from blocks, second head")
	}
}

// TestRecall measures how many of the tokens chosen with half-precision keys the integer scores choose.
func TestRecall(t *testing.T) {
	for score, want := range map[string]float64{"int8": 0.97, "int4": 0.90} {
		hit, all := 0, 0
		for seed := range uint64(6) {
			s := randomScene(seed, 600, 4, 2, 64)
			s.fill()
			if score == "int4" {
				s.levels, s.perChannel = 7, true
			}
			exact := selected(t, s, "hillinfer:alpha=0.1,score=fp16", nil).Heads[0]
			for _, i := range selected(t, s, "hillinfer:alpha=0.1,score="+score, nil).Heads[0] {
				if slices.Contains(exact, i) {
					hit++
				}
				all++
			}
		}
		recall := float64(hit) / float64(all)
		t.Logf("%s: recall %.3f", score, recall)
		if recall < want {
			t.Errorf("%s: recall %.3f of the half-precision selection, want %.2f", score, recall, want)
		}
	}
}

// TestRawDotRanking checks algorithms.md 7.9 on what the policy selects: within one head raw products rank tokens as the
// softmax does, by hillinfer's own rules and by softmax weights that are computed here. Over several heads they need not.
func TestRawDotRanking(t *testing.T) {
	differ := 0
	for seed := range uint64(20) {
		one := randomScene(seed, 121, 1, 1, 16)
		want := topOf(one.weights(0, 120)[:120], 30)
		for _, heads := range []string{"sum", "kv_head", "max", "softmax"} {
			got := selected(t, one, "hillinfer:alpha=0.25,query=exact,score=fp16,heads="+heads, nil).Heads[0]
			equalIndices(t, got[:len(got)-1], want, "one head, heads="+heads+" against softmax weights")
		}
		two := randomScene(seed, 121, 2, 2, 16)
		for g, got := range selected(t, two, "hillinfer:alpha=0.25,query=exact,score=fp16,heads=kv_head", nil).Heads {
			equalIndices(t, got[:len(got)-1], topOf(two.weights(g, 120)[:120], 30), fmt.Sprintf("head %d of two", g))
		}
		sum, soft, most := make([]float64, 120), make([]float64, 120), make([]float64, 120)
		for g := range 2 {
			for i, w := range two.weights(g, 120)[:120] {
				dot := dot64(two.query(g, 120), two.key(g, i))
				sum[i] += dot
				soft[i] += w
				if g == 0 || dot > most[i] {
					most[i] = dot
				}
			}
		}
		for heads, score := range map[string][]float64{"sum": sum, "softmax": soft, "max": most} {
			got := selected(t, two, "hillinfer:alpha=0.25,query=exact,score=fp16,heads="+heads, nil).Heads[0]
			equalIndices(t, got[:len(got)-1], topOf(score, 30), "two heads, heads="+heads)
		}
		if !slices.Equal(topOf(sum, 30), topOf(soft, 30)) {
			differ++
		}
	}
	if differ == 0 {
		t.Error("over two heads the sum of products never ranked otherwise than the sum of weights: this scene shows nothing")
	}
}

func TestRoundHalf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200000 {
		f := math.Float32frombits(r.Uint32())
		if f != f || f > 65519 || f < -65519 {
			continue
		}
		if got, want := kernels.RoundHalf(f), float16.Fromfloat32(f).Float32(); got != want && !(f > 65504 || f < -65504) {
			t.Fatalf("%g: %g, want %g", f, got, want)
		}
	}
}

// TestBalance checks that every mode makes its own two times equal to 1e-9.
func TestBalance(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 1000 {
		b := Balance{Alpha: r.Float64(), FC: 1e9 * (1 + 20*r.Float64()), FS: 1e9 * (0.2 + 5*r.Float64()),
			BC: 1e9 * (1 + 30*r.Float64()), BS: 1e9 * (0.5 + 4*r.Float64())}
		for _, mode := range []BetaMode{BetaEq4, BetaStoreForward, BetaRatio, BetaOverlap} {
			beta := b.Beta(mode)
			hot := beta / (1 + beta) * 64e9
			if host, drive := b.Times(mode, hot, 64e9-hot); math.Abs(host-drive) > 1e-9*host {
				t.Fatalf("%s: host %g s, drive %g s", mode, host, drive)
			}
		}
		h := r.Float64()
		for _, mode := range []BetaMode{BetaEq4, BetaStoreForward, BetaRatio, BetaOverlap} {
			if share := b.skewedShare(mode, h); share > 0 && share < 1 {
				u := Balanced{Balance: b, Mode: mode, Found: h, Share: share}
				if host, drive := u.Times(64e9); math.Abs(host-drive) > 1e-9*host || mode == BetaRatio && host != share*64e9/b.FC {
					t.Fatalf("%s, skew %g: host %g s, drive %g s", mode, h, host, drive)
				}
			}
		}
	}
}

// TestPools walks hot and cold pools by hand (testdata/pools):
//
//	start prompt=N hot=H alpha=A
//	step selected=(p,p,...) n=N target=T    one decode step: what was selected, tokens now, hot tokens wanted
func TestPools(t *testing.T) {
	datadriven.RunTest(t, "testdata/pools", func(t *testing.T, d *datadriven.TestData) string { return poolsCase(t, d) })
}

// TestHillinferSession plays steps of three layers with several sizes of the hot pool: what is selected is the same, hot
// tokens stay within the capacity, moves and pools agree, and the hot share follows the balance.
func TestHillinferSession(t *testing.T) {
	var first []string
	for _, capacity := range []int{1 << 30, 120, 40, 0} {
		r := rand.New(rand.NewPCG(6, 6))
		s := randomScene(6, 200, 4, 2, 16)
		s.fill()
		set := mustSet(t, "hillinfer:alpha=0.1,query=exact,pools=paper", s)
		p := set.Placer.(*hillinfer)
		p.SetBalance(Balance{FC: 8e9, FS: 4e9, BC: 20e9, BS: 3e9})
		hot := p.PlacePrompt(200, capacity)
		if want := min(capacity, int(math.Round(200*p.hotShare()))); hot != want {
			t.Fatalf("%d tokens hot after the prompt, want %d", hot, want)
		}
		var picks []string
		var moves Moves
		for range 20 {
			s.step(r)
			for layer := range 3 {
				s.index = layer
				var read Selection
				set.Selector.Select(s.layer(0, 1), &read)
				picks = append(picks, fmt.Sprint(read.Heads))
			}
			n := len(s.q)
			p.EndStep(n, capacity, -1, &moves)
			hot := 0
			for i := range n {
				if p.Hot(i) {
					hot++
				}
			}
			if hot > capacity {
				t.Fatalf("%d tokens hot, capacity %d", hot, capacity)
			}
			for _, pos := range moves.Promote {
				if !p.Hot(int(pos)) {
					t.Fatalf("token %d was promoted and is cold", pos)
				}
			}
			for _, pos := range moves.Demote {
				if p.Hot(int(pos)) {
					t.Fatalf("token %d was demoted and is hot", pos)
				}
			}
		}
		if part := p.hotPart; part < 0 || part > 1 || capacity == 0 && part > 0.1 { // only the newest token is hot then
			t.Errorf("capacity %d: share found hot %g", capacity, part)
		}
		if first == nil {
			first = picks
		} else if !slices.Equal(first, picks) {
			t.Errorf("capacity %d: another selection", capacity)
		}
	}
}

// TestHillinferHeads compares the other ways of ranking with plain loops over exact products, which integers come near.
func TestHillinferHeads(t *testing.T) {
	for _, rule := range []string{"max", "softmax", "kv_head"} {
		hit, all := 0, 0
		for seed := range uint64(5) {
			s := randomScene(seed, 300, 4, 2, 32)
			s.fill()
			for _, score := range []string{"int8", "fp16"} {
				got := selected(t, s, "hillinfer:alpha=0.1,heads="+rule+",score="+score, nil)
				for g := range 2 {
					exact := make([]float64, 299)
					for h := range 4 {
						weights := s.weights(h, 299)
						for i := range exact {
							x := dot64(s.query(h, 299), s.key(h/2, i))
							switch {
							case rule == "kv_head" && h/2 == g:
								exact[i] += x
							case rule == "max" && (h == 0 || x > exact[i]):
								exact[i] = x
							case rule == "softmax":
								exact[i] += weights[i]
							}
						}
					}
					for _, i := range topOf(exact, 30) {
						if slices.Contains(got.Heads[g], i) {
							hit++
						}
						all++
					}
				}
			}
		}
		if recall := float64(hit) / float64(all); recall < 0.96 {
			t.Errorf("heads=%s: %.3f of the exact choice", rule, recall)
		}
	}
}

func TestExpandFiles(t *testing.T) {
	read := func(path string) ([]byte, error) {
		if path != "b.txt" {
			return nil, fmt.Errorf("no file %s", path)
		}
		return []byte("50%\n25%\n 1k\n"), nil
	}
	got, err := ExpandFiles("per_layer:press=knorm,budgets=@b.txt,beta=3+quest", read)
	if want := "per_layer:press=knorm,budgets=50%/25%/1k,beta=3+quest"; err != nil || got != want {
		t.Errorf("%q, %v: want %q", got, err, want)
	}
	if _, err := ExpandFiles("per_layer:budgets=@c.txt", read); err == nil || !strings.Contains(err.Error(), "c.txt") {
		t.Errorf("a missing file: %v", err)
	}
}

// TestH2OFollowsTheCache checks that running sums follow tokens that someone else evicts.
func TestH2OFollowsTheCache(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	s := randomScene(3, 60, 2, 1, 16)
	set := mustSet(t, "h2o:budget=50,recent=10", s)
	ref := &refH2O{}
	var p Selection
	for step := range 20 {
		rows := 1
		if step == 0 {
			rows = 60
			s.fill()
		} else {
			s.step(r)
		}
		want := ref.observe(s, rows, 50, 10)
		if step == 0 {
			set.Keeper.KeepPrompt(s.shown(set.Keeper), &p)
			s.keep(&p)
		} else {
			set.Dropper.DropStep(s.shown(set.Dropper), &p)
			s.evict(&p)
		}
		equalPositions(t, s.pos, want, fmt.Sprint("step ", step))
		if step%5 == 4 { // a hard budget takes two tokens away
			s.pos[0] = slices.Delete(s.pos[0], 3, 5)
		}
	}
}
