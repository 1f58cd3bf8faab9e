package retrieval

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"terrace/internal/cacheshape"
	"terrace/internal/kernels"
	"terrace/kvmanager"
	"terrace/policy"
)

// TestColumnSumsAreTheWeights: what a keeper sees of the prompt's attention is the sum of the softmax weights of the queries that it asks
// for, row by row too, whatever the chunks.
func TestColumnSumsAreTheWeights(t *testing.T) {
	const n = 90
	for _, c := range []struct {
		sums  int
		rows  bool
		chunk int
		first int32 // the first query that counts
	}{{policy.AllRows, false, 64, 0}, {policy.AllRows, false, 17, 0}, {10, true, 64, n - 10}, {10, false, 8, n - 10}, {1, true, 32, n - 1}} {
		bubble(t, fmt.Sprint(c), func(t *testing.T) {
			spec := parsed(t, "full")
			s := openScenario(t, spec, setup{})
			defer s.close(t)
			seen := 0
			p := &testKeeper{needs: policy.Needs{PromptSums: c.sums, PromptRows: c.rows}}
			x := s.under(t, "a", p.set(), spec)
			p.seen = func(l *policy.Layer) {
				seen++
				if l.SumRows != int(n-c.first) || l.N != n || l.Prompt != n || l.Index >= 3 || l.Layers != 3 {
					t.Errorf("layer %+v", l)
				}
				for h, sums := range l.ColumnSums {
					slowly(x, l.Index).compareSums(t, h, c.first, n, sums, l.PromptRows)
				}
			}
			if err := s.prompt(x, n, c.chunk); err != nil || seen != 3 {
				t.Fatalf("%v; %d layers seen", err, seen)
			}
			if x.obs.layers[0].rowsOf != nil || x.obs.layers[0].sums != nil {
				t.Error("what only the prompt's end needs is still there")
			}
		})
	}
}

// compareSums holds the sums of the weights of queries first to n-1 against the reference.
func (s *slow) compareSums(t *testing.T, h int, first, n int32, sums []float32, rows [][]float32) {
	t.Helper()
	want := make([]float64, n)
	for at := first; at < n; at++ {
		weights := s.weights(h, at, upTo(at+1))
		for i, w := range weights {
			want[i] += w
		}
		for i := range int(n) {
			w := 0.0
			if i < len(weights) {
				w = weights[i]
			}
			if rows != nil && math.Abs(float64(rows[h][int(at-first)*int(n)+i])-w) > 1e-3 {
				t.Fatalf("head %d, query %d, token %d: weight %g, want %g", h, at, i, rows[h][int(at-first)*int(n)+i], w)
			}
		}
	}
	for i, w := range want {
		if math.Abs(float64(sums[i])-w) > 2e-3+0.005*w {
			t.Fatalf("head %d, token %d: %g, want %g", h, i, sums[i], w)
		}
	}
}

// TestStepSums: a dropping policy sees the weights of its newest queries, as many as it asks for, up to the steps at which it acts.
func TestStepSums(t *testing.T) {
	for _, want := range []int{1, 3} {
		bubble(t, fmt.Sprint(want, " queries"), func(t *testing.T) {
			spec := parsed(t, "full")
			s := openScenario(t, spec, setup{})
			defer s.close(t)
			p, seen := &testKeeper{needs: policy.Needs{StepSums: want}, due: func(n, _ int) bool { return n%4 == 0 }}, 0
			x := s.under(t, "a", p.set(), spec)
			p.drop = func(*policy.Layer, *policy.Selection) {}
			x.set.Dropper = p
			x.obs.init(x.Sequence)
			if err := s.prompt(x, 29, 64); err != nil {
				t.Fatal(err)
			}
			p.seen = func(l *policy.Layer) {
				seen++
				if l.SumRows != want {
					t.Errorf("%d queries are summed, want %d", l.SumRows, want)
				}
				for h, sums := range l.ColumnSums {
					slowly(x, l.Index).compareSums(t, h, int32(l.N-want), int32(l.N), sums, nil)
				}
			}
			for range 9 {
				if err := s.step(x); err != nil {
					t.Fatal(err)
				}
				s.check(t)
			}
			if seen != 2*3 {
				t.Errorf("seen %d times, want at two steps in three layers", seen)
			}
		})
	}
}

// turningRope turns a vector by its position, so that unrotated queries can be told from rotated ones.
type turningRope struct{}

func (turningRope) Rotate(x []float32, position int) { kernelsScale(x, float32(position+1)) }

func (turningRope) Unrotate(x []float32, position int) { kernelsScale(x, 1/float32(position+1)) }

func kernelsScale(x []float32, by float32) {
	for i := range x {
		x[i] *= by
	}
}

// TestQueryStatistics: the mean and covariance that a policy sees are those of the queries turned back, from the position on that it asks.
func TestQueryStatistics(t *testing.T) {
	bubble(t, "statistics", func(t *testing.T) {
		const n, from = 150, 20
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{edit: func(o *Options, _ *kvmanager.Options) {
			o.Shape.Rope = func(int, bool) Rope { return turningRope{} }
		}})
		defer s.close(t)
		p := &testKeeper{needs: policy.Needs{Observations: []policy.Observation{policy.QueryStatistics{From: from}}}}
		x, seen := s.under(t, "a", p.set(), spec), 0
		p.seen = func(l *policy.Layer) {
			seen++
			want := policy.NewQueryStats(4, 32)
			for pos := int32(from); pos < n; pos++ {
				row := slices.Clone(x.numbers(ofQueries, l.Index, pos, 128))
				kernelsScale(row, 1/float32(pos+1))
				want.Add(row, 1)
			}
			stats, _ := policy.Seen[*policy.QueryStats](l.Observed, policy.QueryStatistics{From: from})
			if stats.Count != n-from {
				t.Errorf("statistics of %d queries, want %d", stats.Count, n-from)
			}
			for _, field := range []string{"sum", "outer"} {
				got, want := reflect.ValueOf(*stats).FieldByName(field), reflect.ValueOf(*want).FieldByName(field)
				for i := range want.Len() {
					if a, b := got.Index(i).Float(), want.Index(i).Float(); math.Abs(a-b) > 1e-4*(1+math.Abs(b)) {
						t.Fatalf("layer %d, %s %d: %g, want %g", l.Index, field, i, a, b)
					}
				}
			}
		}
		if err := s.prompt(x, n, 40); err != nil || seen != 3 {
			t.Fatalf("%v; %d layers seen", err, seen)
		}
	})
}

// TestQueryCenters: where the queries that a policy sees stand is where they stood before they were turned, over all of the prompt; what an
// observer forgets it counts again from nothing.
func TestQueryCenters(t *testing.T) {
	bubble(t, "centers", func(t *testing.T) {
		const n = 90
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{edit: func(o *Options, _ *kvmanager.Options) {
			o.Shape.Rope = func(int, bool) Rope { return turningRope{} }
		}})
		defer s.close(t)
		p := &testKeeper{needs: policy.Needs{Observations: []policy.Observation{policy.QueryCenters{}}}}
		x, seen := s.under(t, "a", p.set(), spec), 0
		p.seen = func(l *policy.Layer) {
			seen++
			want := policy.NewCenters(4, 16)
			for pos := range int32(n) {
				row := slices.Clone(x.numbers(ofQueries, l.Index, pos, 128))
				kernelsScale(row, 1/float32(pos+1))
				want.Add(row, 1, policy.Planes(turningRope{}, 32))
			}
			got, _ := policy.Seen[*policy.Centers](l.Observed, policy.QueryCenters{})
			if got.Count != n {
				t.Errorf("centers of %d queries, want %d", got.Count, n)
			}
			for i := range want.Real {
				for _, pair := range [][2]float64{{got.Real[i], want.Real[i]}, {got.Imag[i], want.Imag[i]}, {got.Length[i], want.Length[i]}} {
					if math.Abs(pair[0]-pair[1]) > 1e-4*(1+math.Abs(pair[1])) {
						t.Fatalf("layer %d, number %d: %g, want %g", l.Index, i, pair[0], pair[1])
					}
				}
			}
		}
		if err := s.prompt(x, n, 40); err != nil || seen != 3 {
			t.Fatalf("%v; %d layers seen", err, seen)
		}
		if c := x.obs.each[0].(*queryCenters); c.layers[0] != nil {
			t.Error("centers are kept for nobody")
		}
	})
}

// TestNewestQueriesAreKept: as many rows as the policy asks for, oldest first; KeepQueries lends others and gives the newest back.
func TestNewestQueriesAreKept(t *testing.T) {
	bubble(t, "queries", func(t *testing.T) {
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{})
		defer s.close(t)
		p := &testKeeper{needs: policy.Needs{Queries: 7}}
		p.seen = func(l *policy.Layer) {
			if l.Rows != 7 {
				t.Fatalf("%d rows", l.Rows)
			}
			for i := range 7 {
				want := s.texts["a"].numbers(ofQueries, l.Index, int32(50-7+i), 128)
				if !slices.Equal(l.Queries[i*128:(i+1)*128], want) {
					t.Fatalf("layer %d: row %d is another's", l.Index, i)
				}
			}
		}
		x := s.under(t, "a", p.set(), spec)
		if err := s.prompt(x, 50, 16); err != nil {
			t.Fatal(err)
		}
		if l := &x.obs.layers[0]; l.queries != nil || l.rows != 0 {
			t.Error("queries are kept for nobody")
		}
		lent := make([]float32, 9*128)
		for i := range lent {
			lent[i] = float32(i)
		}
		x.KeepQueries(0, lent, 9)
		if l := x.Layer(0, 0); l.Rows != 9 || &l.Queries[0] != &lent[0] {
			t.Error("rows that the caller holds are not shown")
		}
		x.KeepQueries(0, nil, 0)
		if l := x.Layer(0, 0); l.Rows != 7 || l.Queries[0] != 2*128 || &l.Queries[0] == &lent[2*128] {
			t.Errorf("%d rows of its own, first number %g", l.Rows, l.Queries[0])
		}
	})
}

// TestChunkRows: the rows that a policy sees in one stay together, and no chunk is empty or too long.
func TestChunkRows(t *testing.T) {
	bubble(t, "chunks", func(t *testing.T) {
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{})
		defer s.close(t)
		for _, sums := range []int{0, 1, 10, 64, 100} {
			x := s.under(t, "a", (&testKeeper{needs: policy.Needs{PromptSums: sums}}).set(), spec)
			for total := 1; total < 300; total++ {
				for _, size := range []int{1, 16, 64} {
					var chunks []int
					for left := total; left > 0; left -= chunks[len(chunks)-1] {
						chunks = append(chunks, x.ChunkRows(left, size))
						if n := chunks[len(chunks)-1]; n < 1 || n > max(size, sums) {
							t.Fatalf("%d rows of %d left in chunks of %d", n, left, size)
						}
					}
					if last := chunks[len(chunks)-1]; last < min(total, sums) {
						t.Fatalf("the last of %v of %d has %d rows, %d are seen in one", chunks, total, last, sums)
					}
				}
			}
			if err := x.Free(); err != nil {
				t.Fatal(err)
			}
		}
		delete(s.texts, "a")
	})
}

// projectionOf is an output projection [Hidden, Heads·ValueDim] of numbers of its place.
func projectionOf(layer int) ([]float32, error) {
	if layer == 2 {
		return nil, errTest
	}
	w := make([]float32, 128*128)
	for i := range w {
		w[i] = float32((i*7+layer)%11) - 5
	}
	return w, nil
}

// TestOutputNorms: what a value brings to the layer's output is the L1 norm of the head's part of the projection times it; without a
// projection, or where it cannot be had, the prompt fails with the reason.
func TestOutputNorms(t *testing.T) {
	bubble(t, "norms", func(t *testing.T) {
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{edit: func(o *Options, _ *kvmanager.Options) { o.Shape.Output = projectionOf }})
		defer s.close(t)
		p := &testKeeper{needs: policy.Needs{Observations: []policy.Observation{policy.OutputNorms{}}}}
		x := s.under(t, "a", p.set(), spec)
		p.seen = func(l *policy.Layer) {
			w, _ := projectionOf(l.Index)
			norms := make([][]float32, 4)
			for h := range norms {
				norms[h] = make([]float32, 12)
			}
			fill, _ := policy.Seen[func(dst [][]float32)](l.Observed, policy.OutputNorms{})
			fill(norms)
			for h := range norms {
				for i, got := range norms[h] {
					want, value := 0.0, slowly(x, l.Index).value(h/2, int32(i))
					for row := range 128 {
						sum := 0.0
						for d, v := range value {
							sum += float64(w[row*128+h*32+d]) * v
						}
						want += math.Abs(sum)
					}
					if math.Abs(float64(got)-want) > 1e-3*want {
						t.Fatalf("layer %d head %d, token %d: %g, want %g", l.Index, h, i, got, want)
					}
				}
			}
		}
		if err := s.prompt(x, 12, 64); !errors.Is(err, errTest) {
			t.Errorf("layer 2's projection cannot be had: %v", err)
		}
		s.shared.o.Shape.Output = nil
		if err := s.prompt(x, 12, 64); !errors.Is(err, policy.ErrModel) {
			t.Errorf("without a projection: %v", err)
		}
	})
}

// TestWindowsAndSharedLayers: layers with a sliding window, and layers that read an earlier one's keys, attend to what the reference does;
// policies act on neither; with WindowOnly what no row reads goes.
func TestWindowsAndSharedLayers(t *testing.T) {
	kv := cacheshape.KV{Heads: 2, KeyDim: 32, ValueDim: 32}
	windowed := kv
	windowed.Window = 48
	layers := cacheshape.Model{{Heads: 4, KV: windowed, Owner: 0}, {Heads: 4, KV: kv, Owner: 1}, {Heads: 4, Owner: 1}, {Heads: 4, KV: kv, Owner: 3}}
	for _, name := range []string{"full", "h2o:budget=50", "quest:budget=64,dense_layers=0"} {
		for _, with := range []setup{{}, {blocks: 150}} {
			bubble(t, fmt.Sprint(name, with.blocks), func(t *testing.T) {
				with.layers = layers
				with.edit = func(o *Options, _ *kvmanager.Options) { o.WindowOnly = true }
				spec := parsed(t, name)
				s := openScenario(t, spec, with)
				defer s.close(t)
				x := s.text(t, "a", spec)
				if err := s.prompt(x, 200, 64); err != nil {
					t.Fatal(err)
				}
				for range 6 {
					at := x.Read()
					if err := s.step(x); err != nil {
						t.Fatal(err)
					}
					s.check(t)
					for layer := range layers {
						slowly(x, layer).compareOutput(t, x.layerOut(layer), at, x.picks[layer], nil)
					}
					if !slices.EqualFunc(x.picks[2], x.picks[1], slices.Equal) {
						t.Fatal("a layer that reads another's keys reads others")
					}
					if n := len(x.picks[1][0]); name != "full" && n > 96 || name == "full" && n != int(at)+1 {
						t.Fatalf("%d tokens read under %s", n, name)
					}
				}
				if n := x.seq.Tokens(0, 0); name == "full" && n > 48+2*kernels.BlockTokens || name != "full" && n != 206 {
					t.Errorf("a window of 48 has %d tokens", n)
				}
				if x.Acts(0) || x.Acts(2) || !x.Acts(1) {
					t.Error("policies act on windows or on what reads others' keys")
				}
			})
		}
	}
}

// longestRow is an observation of a test's own: how many rows of each layer have been seen, and the largest number in them.
type longestRow struct{ Scale float32 }

func (longestRow) Key() string    { return "longest_row" }
func (longestRow) String() string { return "the largest number of a query" }

type longestSeen struct {
	scale   float32
	rows    map[int]int
	largest map[int]float32
	forgot  map[int]bool
}

func (s *longestSeen) Rows(layer int, q []float32, pos []int32) {
	s.rows[layer] += len(pos)
	for _, x := range q[:len(pos)*len(q)/len(pos)] {
		s.largest[layer] = max(s.largest[layer], s.scale*x)
	}
}

func (s *longestSeen) Value(layer int) (any, error) {
	if layer == 2 {
		return nil, errTest
	}
	return s.largest[layer], nil
}

func (s *longestSeen) Forget(layer int) { s.forgot[layer] = true }

// TestObservationOfItsOwn: what a program registers is shown every row once, its value is what the policy sees by the observation that it
// asked for, and its error is the prompt's; what nobody has registered is refused by name.
func TestObservationOfItsOwn(t *testing.T) {
	bubble(t, "own", func(t *testing.T) {
		var observer *longestSeen
		defer delete(observers, "longest_row")
		RegisterObserver("longest_row", func(_ *Sequence, o policy.Observation) Observer {
			observer = &longestSeen{o.(longestRow).Scale, map[int]int{}, map[int]float32{}, map[int]bool{}}
			return observer
		})
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{})
		defer s.close(t)
		p := &testKeeper{needs: policy.Needs{Observations: []policy.Observation{longestRow{Scale: 2}}}}
		x, seen := s.under(t, "a", p.set(), spec), 0
		p.seen = func(l *policy.Layer) {
			want := float32(0)
			for pos := range int32(50) {
				want = max(want, 2*slices.Max(x.numbers(ofQueries, l.Index, pos, 128)))
			}
			got, ok := policy.Seen[float32](l.Observed, longestRow{Scale: 2})
			if _, other := policy.Seen[float32](l.Observed, longestRow{Scale: 1}); !ok || got != want || other {
				t.Errorf("layer %d: %v, want %v", l.Index, got, want)
			}
			seen++
		}
		if err := s.prompt(x, 50, 20); !errors.Is(err, errTest) {
			t.Errorf("layer 2 has no value: %v", err)
		}
		if seen != 2 || observer.rows[0] != 50 || observer.rows[1] != 50 || !observer.forgot[0] || !observer.forgot[1] || observer.forgot[2] {
			t.Errorf("%d layers decided about, rows %v, forgotten %v", seen, observer.rows, observer.forgot)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a key was taken twice")
				}
			}()
			RegisterObserver("longest_row", nil)
		}()
		delete(observers, "longest_row")
		_, err := s.shared.newSequence(s.shared.o.KV.NewSequence(), 0, p.set(), SequenceOptions{Policy: spec})
		if !errors.Is(err, policy.ErrModel) || !strings.Contains(err.Error(), "longest_row") || !strings.Contains(err.Error(), "query_statistics") {
			t.Errorf("nobody observes it: %v", err)
		}
	})
}
