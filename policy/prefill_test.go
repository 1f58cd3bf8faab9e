package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"terrace/internal/cacheshape"
)

// weighted adds the newest rows' attention weights, as a Masker sees them.
func (s *scene) weighted(l *Layer, rows int) *Layer {
	l.WeightRows = min(rows, l.N)
	l.Weights = func(h int, dst []float32) {
		for t := l.N - l.WeightRows; t < l.N; t++ {
			dst = dst[copy(dst, single(s.weights(h, t))):]
		}
	}
	return l
}

// refSlimInfer scores blocks of the alive positions with plain loops and returns the positions that go on.
func refSlimInfer(s *scene, alive []int32, block, unit, window, blocks int) []int32 {
	group := s.heads / s.kvHeads
	score := map[int32]float64{}
	var order []int32
	for _, p := range alive {
		if b := p / int32(block); len(order) == 0 || order[len(order)-1] != b {
			order = append(order, b)
			score[b] = math.Inf(-1)
		}
	}
	for _, b := range order {
		for u := int(b) * block; u < int(b+1)*block; u += unit {
			var tokens []int
			for t := u; t < u+unit; t++ {
				if slices.Contains(alive, int32(t)) {
					tokens = append(tokens, t)
				}
			}
			if len(tokens) == 0 {
				continue
			}
			var r float64
			for h := range s.heads {
				for d := range s.dim {
					var q, k float64
					for t := len(s.q) - window; t < len(s.q); t++ {
						q += float64(s.query(h, t)[d]) / float64(window)
					}
					for _, t := range tokens {
						k += float64(s.key(h/group, t)[d]) / float64(len(tokens))
					}
					r += q * k / float64(s.heads)
				}
			}
			score[b] = max(score[b], r)
		}
	}
	score[order[0]], score[order[len(order)-1]] = math.Inf(1), math.Inf(1)
	sort.SliceStable(order, func(i, j int) bool { return score[order[i]] > score[order[j]] })
	var out []int32
	for _, p := range alive {
		if slices.Contains(order[:min(blocks, len(order))], p/int32(block)) {
			out = append(out, p)
		}
	}
	return out
}

// pruned runs a pruning layer of a policy on a scene where only the alive positions reached the layer.
func pruned(s *scene, p RowPruner, layer int, alive []int32) []int32 {
	s.index = layer
	s.pos = nil
	s.fill()
	for g := range s.pos {
		s.pos[g] = slices.Clone(alive)
	}
	var rows Rows
	p.KeepRows(s.shown(p), alive, &rows)
	if rows.All {
		return alive
	}
	return rows.Pos
}

func TestSlimInferAgainstReference(t *testing.T) {
	for seed := range uint64(6) {
		n := 200 + 37*int(seed)
		s := randomScene(seed, n, 4, 2, 16)
		s.layers = 12
		p := mustSet(t, "sliminfer:layers=2/5/9,keep=112/64/48,block=16,unit=4,window=3", s).Pruner
		if got := p.PruneLayers(); !slices.Equal(got, []int{1, 4, 8}) {
			t.Fatalf("pruning layers %v", got)
		}
		alive := span(nil, 0, n)
		for i, blocks := range []int{7, 4, 3} {
			want := refSlimInfer(s, alive, 16, 4, 3, blocks)
			got := pruned(s, p, p.PruneLayers()[i], alive)
			equalIndices(t, got, want, fmt.Sprintf("seed %d stage %d", seed, i))
			alive = got
		}
	}
}

// TestSlimInferSwap follows Algorithm 1 with sets and loops.
func TestSlimInferSwap(t *testing.T) {
	changed := 0
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 8))
		s := randomScene(seed, 320, 4, 2, 16)
		s.layers = 12
		all := span(nil, 0, 320)
		p := mustSet(t, "sliminfer:layers=2,keep=160,block=16,unit=4,gamma=0.9", s).Swapper
		active := blockSet(pruned(s, p, 1, all), 16)
		for step := range 12 {
			s.step(r)
			wanted := blockSet(refSlimInfer(s, all, 16, 4, 4, 10), 16)
			both := 0
			for _, b := range wanted {
				if slices.Contains(active, b) {
					both++
				}
			}
			var load, offload []int32
			if float64(both)/float64(len(wanted)) < 0.9 {
				for _, b := range wanted {
					if !slices.Contains(active, b) {
						load = append(load, b)
					}
				}
				for _, b := range active {
					if !slices.Contains(wanted, b) {
						offload = append(offload, b)
					}
				}
				active = wanted
				changed++
			}
			var swap Swap
			p.SwapBlocks(s.shown(p), &swap)
			what := fmt.Sprintf("seed %d step %d ", seed, step)
			equalIndices(t, swap.Active, active, what+"active")
			equalIndices(t, swap.Load, load, what+"load")
			equalIndices(t, swap.Offload, offload, what+"offload")
		}
	}
	if changed == 0 {
		t.Error("no swap ever happened")
	}
}

func blockSet(pos []int32, size int32) []int32 {
	var out []int32
	for _, p := range pos {
		if b := p / size; len(out) == 0 || out[len(out)-1] != b {
			out = append(out, b)
		}
	}
	return out
}

// TestSlimInferMemory checks algorithms.md 7.1: the KV of Llama 3.1 8B's shape, alive after each pruning layer, is the
// paper's Table 2 to 0.01 GiB.
func TestSlimInferMemory(t *testing.T) {
	m := Model{Layers: cacheshape.Equal(32, 32, cacheshape.KV{Heads: 8, KeyDim: 128, ValueDim: 128}), Hidden: 4096}
	spec, err := Parse("sliminfer")
	if err != nil {
		t.Fatal(err)
	}
	set, err := spec.New(m)
	if err != nil {
		t.Fatal(err)
	}
	p := set.Pruner.(*slimInfer)
	for i, want := range []float64{0.80, 1.11, 1.42, 1.58, 1.73} {
		n := []int{8, 16, 24, 28, 32}[i] << 10
		alive, bytes := n, 0
		for layer := range len(m.Layers) {
			bytes += alive * m.Layers[0].KV.Numbers() * 2
			if slices.Contains(p.PruneLayers(), layer) {
				alive = min(alive, p.blockBudget(&Layer{Index: layer, N: n})*64)
			}
		}
		if got := float64(bytes) / (1 << 30); math.Abs(got-want) > 0.0101 {
			t.Errorf("%d tokens: %.3f GiB, want %.2f", n, got, want)
		}
	}
}

func TestLazyLLMAgainstReference(t *testing.T) {
	for seed := range uint64(5) {
		s := randomScene(seed, 150, 4, 2, 16)
		s.layers = 12
		p := mustSet(t, "lazyllm:layers=3/6,keep=50%/40%", s).Pruner
		alive := span(nil, 0, 150)
		for i, share := range []float64{0.5, 0.4} {
			s.pos = [][]int32{alive, alive}
			sum := make([]float64, len(alive))
			for h := range 4 {
				for j, w := range s.weights(h, 149) {
					sum[j] += w / 4
				}
			}
			sum[len(sum)-1] = 2
			var want []int32
			for _, j := range topOf(sum, int(share*float64(len(alive)))) {
				want = append(want, alive[j])
			}
			got := pruned(s, p, p.PruneLayers()[i], alive)
			equalIndices(t, got, want, fmt.Sprintf("seed %d stage %d", seed, i))
			alive = got
		}
	}
}

func TestMInferenceAgainstReference(t *testing.T) {
	for seed := range uint64(4) {
		n := 300 + 41*int(seed)
		s := randomScene(seed, n, 4, 2, 16)
		s.fill()
		p := mustSet(t, "minference:vertical=8k,slash=16k", s).Masker
		var m Mask
		p.MaskPrompt(s.weighted(s.layer(0, 64), 64), &m)
		v, d := max(8192*n/32768, 30), max(16384*n/32768, 50)
		for h := range 4 {
			columns, diagonals := make([]float64, n), make([]float64, n)
			for q := n - 64; q < n; q++ {
				for k, w := range s.weights(h, q)[:q+1] {
					columns[k] += w
					diagonals[q-k] += w
				}
			}
			for i := range 30 {
				columns[i] += 1e6
			}
			for i := range 100 {
				diagonals[i] += 1e6
			}
			equalIndices(t, m.Heads[h].Vertical, topOf(columns, v), fmt.Sprintf("seed %d head %d columns", seed, h))
			equalIndices(t, m.Heads[h].Slash, topOf(diagonals, d), fmt.Sprintf("seed %d head %d diagonals", seed, h))
		}
		checkPairs(t, &m)
	}
}

// checkPairs counts what a mask sees, one pair at a time, and checks causality.
func checkPairs(t *testing.T, m *Mask) {
	t.Helper()
	for h := range m.Heads {
		n := 0
		for q := m.FirstRow; q < m.FirstRow+m.Rows; q++ {
			if !m.Sees(h, q, q) {
				t.Fatalf("head %d: query %d does not see itself", h, q)
			}
			for k := range m.Keys {
				if m.Sees(h, q, k) {
					n++
				}
			}
		}
		if got := m.Pairs(h); got != n {
			t.Errorf("head %d: %d pairs counted, %d seen", h, got, n)
		}
	}
}

// refFlexPrefill returns which (query block, key block) pairs of a head are computed, and whether it is query-aware.
func refFlexPrefill(s *scene, h, block int, gamma, tau float64, minBudget int) (seen map[[2]int]bool, aware bool) {
	n, g := len(s.q), h/(s.heads/s.kvHeads)
	blocks := (n + block - 1) / block
	mean := func(rows [][]float32, at, b int) []float64 {
		out := make([]float64, s.dim)
		size := min((b+1)*block, n) - b*block
		for t := b * block; t < b*block+size; t++ {
			for d := range out {
				out[d] += float64(rows[t][at*s.dim+d]) / float64(size)
			}
		}
		return out
	}
	product := func(qb, kb int) float64 {
		var sum float64
		q, k := mean(s.q, h, qb), mean(s.k, g, kb)
		for d := range q {
			sum += q[d] * k[d]
		}
		return sum / math.Sqrt(float64(s.dim))
	}
	truth, diagonals, guess := make([]float64, blocks), make([]float64, blocks), make([]float64, blocks)
	var norm float64
	for q := n - block; q < n; q++ {
		for k, w := range s.weights(h, q)[:q+1] {
			truth[k/block] += w / float64(block)
			diagonals[q/block-k/block] += w / float64(block)
		}
	}
	for b := range guess {
		guess[b] = math.Exp(product(blocks-1, b))
		norm += guess[b]
	}
	var js float64
	for b := range guess {
		guess[b] /= norm
		m := (guess[b] + truth[b]) / 2
		js += truth[b]*math.Log(truth[b]/m)/2 + guess[b]*math.Log(guess[b]/m)/2
	}
	until := func(x []float64, least int) []int32 {
		var total float64
		for _, v := range x {
			total += v
		}
		for k := max(least, 1); ; k++ {
			var held float64
			for _, i := range topOf(x, k) {
				held += x[i]
			}
			if held >= gamma*total || k >= len(x) {
				return topOf(x, k)
			}
		}
	}
	seen = map[[2]int]bool{}
	for b := range blocks {
		seen[[2]int{b, 0}], seen[[2]int{b, b}] = true, true
	}
	if math.Sqrt(js) < tau {
		flat := make([]float64, blocks*blocks)
		for qb := range blocks {
			var sum float64
			for kb := range qb + 1 {
				flat[qb*blocks+kb] = math.Exp(product(qb, kb))
				sum += flat[qb*blocks+kb]
			}
			for kb := range qb + 1 {
				flat[qb*blocks+kb] /= sum
			}
			for _, kb := range topOf(flat[qb*blocks:qb*blocks+qb+1], minBudget/block) {
				seen[[2]int{qb, int(kb)}] = true
			}
		}
		for _, i := range until(flat, 0) {
			seen[[2]int{int(i) / blocks, int(i) % blocks}] = true
		}
		return seen, true
	}
	for _, kb := range until(truth, minBudget/block) {
		for qb := int(kb); qb < blocks; qb++ {
			seen[[2]int{qb, int(kb)}] = true
		}
	}
	for _, d := range until(diagonals, minBudget/block) {
		for qb := int(d); qb < blocks; qb++ {
			seen[[2]int{qb, qb - int(d)}] = true
		}
	}
	return seen, false
}

func TestFlexPrefillAgainstReference(t *testing.T) {
	aware, lines := 0, 0
	for seed := range uint64(6) {
		s := randomScene(seed, 320, 4, 2, 16)
		s.fill()
		for _, tau := range []float64{0.02, 0.3} {
			p := mustSet(t, fmt.Sprintf("flexprefill:block=16,min_budget=48,gamma=0.8,tau=%g", tau), s).Masker
			var m Mask
			p.MaskPrompt(s.weighted(s.layer(0, AllRows), 16), &m)
			for h := range 4 {
				want, queryAware := refFlexPrefill(s, h, 16, 0.8, tau, 48)
				if queryAware {
					aware++
				} else {
					lines++
				}
				for qb := range 20 {
					for kb := range qb + 1 {
						if got := m.Sees(h, qb*16+15, kb*16); got != want[[2]int{qb, kb}] {
							t.Fatalf("seed %d tau %g head %d (query-aware %v): block %d,%d computed: %v", seed, tau, h, queryAware, qb, kb, got)
						}
					}
				}
			}
			checkPairs(t, &m)
		}
	}
	if aware == 0 || lines == 0 {
		t.Errorf("query-aware %d, columns and diagonals %d: want both", aware, lines)
	}
}

// TestPrefillCoversAll checks that budgets of everything change nothing.
func TestPrefillCoversAll(t *testing.T) {
	s := randomScene(1, 200, 4, 2, 16)
	s.layers, s.index = 12, 3
	s.fill()
	alive := span(nil, 0, 200)
	for _, spec := range []string{"sliminfer:layers=4,keep=64k", "sliminfer:layers=4,keep=100%", "lazyllm:layers=4,keep=100%"} {
		p := mustSet(t, spec, s).Pruner
		var rows Rows
		p.KeepRows(s.shown(p), alive, &rows)
		if !rows.All {
			t.Errorf("%s prunes", spec)
		}
	}
	for _, spec := range []string{"minference:vertical=64k,slash=64k", "flexprefill:min_budget=64k"} {
		var m Mask
		p := mustSet(t, spec, s).Masker
		p.MaskPrompt(s.weighted(s.layer(0, AllRows), 128), &m)
		for h, head := range m.Heads {
			if !head.Dense {
				t.Errorf("%s: head %d is masked", spec, h)
			}
		}
	}
}

// TestPruneLayers settles layers and budgets on shapes of models.
func TestPruneLayers(t *testing.T) {
	llama := Model{Layers: cacheshape.Equal(32, 32, cacheshape.KV{Heads: 8, KeyDim: 128}), Hidden: 4096}
	gemma := Model{Layers: cacheshape.Equal(18, 4, cacheshape.KV{Heads: 1, KeyDim: 256}), Hidden: 640}
	for i := range gemma.Layers {
		if (i+1)%6 != 0 {
			gemma.Layers[i].KV.Window = 512
		}
	}
	recurrent := Model{Layers: slices.Clone(llama.Layers), Hidden: 4096}
	recurrent.Layers[20] = cacheshape.Layer{State: cacheshape.State{Bytes: 64}}
	recurrent.Layers[15] = cacheshape.Layer{State: cacheshape.State{Bytes: 64}}
	for _, c := range []struct {
		spec string
		m    Model
		want string
	}{
		{"sliminfer", llama, "[9 19 29]"},
		{"lazyllm", llama, "[9 19 29]"},
		{"sliminfer", Model{Layers: cacheshape.Equal(28, 4, cacheshape.KV{Heads: 4}), Hidden: 3584}, "[8 17 25]"},
		{"sliminfer", Model{Layers: cacheshape.Equal(30, 3, cacheshape.KV{Heads: 3}), Hidden: 576}, "[8 18 27]"},
		{"sliminfer", gemma, "[5 11]"},
		{"sliminfer:layers=6/12,keep=4k/2k", gemma, "[5 11]"},
		{"sliminfer:layers=7,keep=4k", gemma, "error"},
		{"sliminfer:layers=10,keep=4k", recurrent, "error"},
		{"sliminfer:layers=22,keep=4k", recurrent, "[21]"},
		{"sliminfer", recurrent, "error"},
		{"sliminfer:layers=33,keep=4k", llama, "error"},
		{"sliminfer:layers=10/32,keep=8k/4k", llama, "[9]"}, // nothing lies behind the last layer
		{"sliminfer:layers=32,keep=4k", llama, "[]"},
		{"sliminfer:layers=10/20", llama, "error"},
		{"sliminfer:layers=20/10,keep=4k/2k", llama, "error"},
		{"sliminfer:layers=10/20,keep=4k/2k/1k", llama, "error"},
	} {
		got := "error"
		if spec, err := Parse(c.spec); err == nil {
			if set, err := spec.New(c.m); err == nil {
				got = fmt.Sprint(set.Pruner.PruneLayers())
			}
		}
		if got != c.want {
			t.Errorf("%s on %d layers: %s, want %s", c.spec, len(c.m.Layers), got, c.want)
		}
	}
}

// TestMInferenceSearch checks that the search spends no more than the fixed sizes and holds no less of the sample's weight.
func TestMInferenceSearch(t *testing.T) {
	better := false
	for seed := range uint64(4) {
		s := randomScene(seed, 400, 2, 2, 16)
		s.fill()
		l := s.weighted(s.layer(0, 64), 64)
		held := func(pattern string) (weight float64, size [2]int) {
			p := mustSet(t, "minference:vertical=4k,slash=4k,first=4,newest=8,min_slash=8,pattern="+pattern, s).Masker
			var m Mask
			p.MaskPrompt(l, &m)
			for h := range 2 {
				for q := 336; q < 400; q++ {
					for k, w := range s.weights(h, q)[:q+1] {
						if m.Sees(h, q, k) {
							weight += w
						}
					}
				}
				size[h] = len(m.Heads[h].Vertical) + len(m.Heads[h].Slash)
			}
			return weight, size
		}
		fixed, fixedSize := held("fixed")
		search, searchSize := held("search")
		if search < fixed-1e-9 || searchSize[0] > fixedSize[0] || searchSize[1] > fixedSize[1] {
			t.Errorf("seed %d: search holds %g in %v lines, fixed %g in %v", seed, search, searchSize, fixed, fixedSize)
		}
		better = better || search > fixed+1e-6
	}
	if !better {
		t.Error("the search never found a better split")
	}
}
