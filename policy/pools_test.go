package policy

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/cockroachdb/datadriven"
)

var poolsState pools

func poolsCase(t *testing.T, d *datadriven.TestData) string {
	p := &poolsState
	if d.Cmd == "start" {
		var n, hot int
		var alpha string
		d.ScanArgs(t, "prompt", &n)
		d.ScanArgs(t, "hot", &hot)
		d.ScanArgs(t, "alpha", &alpha)
		*p = pools{}
		p.alpha, _ = strconv.ParseFloat(alpha, 64)
		p.start(n, hot)
		return "hot " + hotList(p) + "\n"
	}
	var n, target int
	d.ScanArgs(t, "n", &n)
	d.ScanArgs(t, "target", &target)
	var b strings.Builder
	for _, arg := range d.CmdArgs {
		if arg.Key != "selected" {
			continue
		}
		all := span(nil, 0, n)
		var picks []int32
		for _, v := range arg.Vals {
			x, err := strconv.Atoi(v)
			if err != nil {
				t.Fatal(err)
			}
			picks = append(picks, int32(x))
		}
		p.vote(all, picks)
		fmt.Fprintf(&b, "found hot: %.2f\n", p.count(1))
	}
	var m Moves
	p.move(n, target, &m)
	fmt.Fprintf(&b, "promote %s demote %s\nhot %s\n", numbers(m.Promote), numbers(m.Demote), hotList(p))
	return b.String()
}

func hotList(p *pools) string {
	var x []int32
	for i, hot := range p.hot {
		if hot {
			x = append(x, int32(i))
		}
	}
	return numbers(x)
}

// plainPools is algorithms.md 1.6 written down again, a list of records and a sort: what is hot after each step.
type plainPools struct {
	alpha  float64
	tokens []plainToken
}

// plainToken counts a token's hits over the steps it was there for.
type plainToken struct {
	hits, alive int
	hot         bool
}

func (p *plainPools) rate(i int) float64 {
	return float64(p.tokens[i].hits) / float64(max(p.tokens[i].alive, 1))
}

// step counts a step's selections, one a layer, and returns what is hot then: the window, R by rate, the tokens that were hot by
// rate. A hit is to be in T_imp of at least half of the layers.
func (p *plainPools) step(layers [][]int32, target int) (promoted, demoted []int32) {
	for i := range p.tokens {
		in := 0
		for _, picks := range layers {
			if slices.Contains(picks, int32(i)) {
				in++
			}
		}
		if p.tokens[i].alive++; in > 0 && in >= len(layers)-in {
			p.tokens[i].hits++
		}
	}
	n := len(p.tokens)
	share := int(math.Ceil(p.alpha*float64(n) - 1e-9))
	byRate := make([]int, n)
	for i := range byRate {
		byRate[i] = i
	}
	slices.SortStableFunc(byRate, func(a, b int) int { return cmp.Compare(p.rate(b), p.rate(a)) })
	want := map[int]bool{}
	for i := n - 1; i >= n-share && len(want) < target; i-- {
		want[i] = true
	}
	for _, i := range byRate[:share] {
		if p.rate(i) > 0 && len(want) < target {
			want[i] = true
		}
	}
	for _, i := range byRate {
		if p.tokens[i].hot && len(want) < target {
			want[i] = true
		}
	}
	for i := range p.tokens {
		switch t := &p.tokens[i]; {
		case want[i] && !t.hot:
			promoted, t.hot = append(promoted, int32(i)), true
		case t.hot && !want[i]:
			demoted, t.hot = append(demoted, int32(i)), false
		}
	}
	return promoted, demoted
}

// TestPoolsMatchTheirDescription: moves and pools are those of the paper's rules written down again; as many tokens are hot as
// the split says, so that what is promoted and what is demoted are equal in number but for the newest token; the table is 2
// bytes a token. Models have one to four layers.
func TestPoolsMatchTheirDescription(t *testing.T) {
	moved := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		p, want := pools{alpha: 0.1}, plainPools{alpha: 0.1, tokens: make([]plainToken, 100)}
		n, hot := 100, 40
		p.start(n, hot)
		for i := n - hot; i < n; i++ {
			want.tokens[i].hot = true
		}
		var m Moves
		for step := range 60 {
			n++
			want.tokens = append(want.tokens, plainToken{hot: true, alive: -1}) // its first step is the one that follows
			layers := make([][]int32, 1+seed%4)
			for layer := range layers {
				for i := range n - 1 {
					if r.IntN(8) == 0 || i%17 == (int(seed)+step/20)%17 && r.IntN(4) > 0 {
						layers[layer] = append(layers[layer], int32(i))
					}
				}
				p.vote(span(nil, 0, n), layers[layer])
			}
			p.count(len(layers))
			target := n * 2 / 5
			promoted, demoted := want.step(layers, target)
			p.move(n, target, &m)
			if !slices.Equal(m.Promote, promoted) || !slices.Equal(m.Demote, demoted) {
				t.Fatalf("seed %d, step %d: promotes %v and demotes %v, want %v and %v", seed, step, m.Promote, m.Demote, promoted, demoted)
			}
			for i, h := range p.hot {
				if h != want.tokens[i].hot {
					t.Fatalf("seed %d, step %d: token %d is hot: %v, want %v", seed, step, i, h, !h)
				}
			}
			if grown := target - hot; len(m.Demote)-len(m.Promote) != 1-grown {
				t.Fatalf("%d promoted, %d demoted, the pool grew by %d", len(m.Promote), len(m.Demote), grown)
			}
			hot = target
			moved += len(m.Promote)
		}
		if table := uintptr(len(p.hits)) * unsafe.Sizeof(p.hits[0]); table != uintptr(2*n) {
			t.Errorf("hit table of %d bytes for %d tokens, want 2 each", table, n)
		}
	}
	if moved == 0 {
		t.Error("nothing was promoted")
	}
}
