package stream

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// choice is what one token chose in one layer.
type choice struct {
	layer   int
	experts []int
}

// recorded are the choices of testdata/choices.txt, token after token.
func recorded(t *testing.T) (trace []choice, layers int) {
	t.Helper()
	text, err := os.ReadFile("testdata/choices.txt")
	if err != nil {
		t.Fatal(err)
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	for at := 0; at+4 <= len(lines[0]); at += 4 {
		for l, line := range lines {
			c := choice{layer: l}
			for _, x := range line[at : at+4] {
				c.experts = append(c.experts, strings.IndexRune(alphabet, x))
			}
			trace = append(trace, c)
		}
	}
	return trace, len(lines)
}

// skewed are choices as real models make them: some experts of a layer are chosen far more often than others (Zipf), which ones
// changes with the subject, every 60 tokens by a few.
func skewed(layers, experts, used, tokens int) (trace []choice) {
	r := rand.New(rand.NewPCG(3, 3))
	order := make([][]int, layers)
	for l := range order {
		order[l] = r.Perm(experts)
	}
	for n := range tokens {
		for l := range layers {
			if n%60 == 59 {
				for range experts / 8 {
					i, j := r.IntN(experts), r.IntN(experts)
					order[l][i], order[l][j] = order[l][j], order[l][i]
				}
			}
			c := choice{layer: l}
			for len(c.experts) < used {
				e := order[l][int(math.Exp(r.Float64()*math.Log(float64(experts)+1))-1)]
				if !slices.Contains(c.experts, e) {
					c.experts = append(c.experts, e)
				}
			}
			slices.Sort(c.experts)
			trace = append(trace, c)
		}
	}
	return trace
}

// tokens is a trace as Optimum takes it.
func tokens(trace []choice, layers int) (used [][][]int) {
	for at := 0; at < len(trace); at += layers {
		token := make([][]int, layers)
		for _, c := range trace[at : at+layers] {
			token[c.layer] = c.experts
		}
		used = append(used, token)
	}
	return used
}

// recency is how many uses are found where who was used longest ago leaves.
func recency(trace []choice, experts, room int) (hits int) {
	var list []int // newest last
	for _, c := range trace {
		for _, e := range c.experts {
			k := c.layer*experts + e
			if at := slices.Index(list, k); at >= 0 {
				hits++
				list = slices.Delete(list, at, at+1)
			} else if len(list) >= room {
				list = list[1:]
			}
			list = append(list, k)
		}
	}
	return hits
}

// TestBelady compares what a store finds in memory with the optimum of the trace and with recency alone, without predictions.
func TestBelady(t *testing.T) {
	const experts, used = 64, 4
	list, layers := recorded(t)
	for name, trace := range map[string][]choice{"recorded": list, "skewed": skewed(layers, experts, used, len(list)/layers)} {
		for _, share := range []int{6, 3, 2} {
			room := layers * experts / share
			p, _ := testPlan(t, layers, experts, used, room)
			s := open(t, p, Options{})
			uses := 0
			for _, c := range trace {
				rows := map[int]int{}
				for _, e := range c.experts {
					rows[e] = 1
				}
				if _, err := step(t, s, c.layer, rows, 1, false); err != nil {
					t.Fatal(err)
				}
				uses += len(c.experts)
			}
			got, best, lru := int(s.Accounts().Hits), Optimum(tokens(trace, layers), experts, room, 0), recency(trace, experts, room)
			of := func(n int) float64 { return float64(n) / float64(uses) }
			t.Logf("%s, 1/%d in memory: %.3f found, the optimum is %.3f (%.2f of it), recency alone %.3f", name, share, of(got), of(best), of(got)/of(best), of(lru))
			if got > best {
				t.Errorf("%s, 1/%d: %d found, more than the optimum of %d", name, share, got, best)
			}
			if least := map[int]float64{6: 0.64, 3: 0.80, 2: 0.84}[share]; of(got) < least*of(best) || got <= lru {
				t.Errorf("%s, 1/%d: %.3f found, want %.2f of the optimum of %.3f at least, and more than recency alone finds, %.3f", name, share, of(got), least, of(best), of(lru))
			}
		}
	}
}
