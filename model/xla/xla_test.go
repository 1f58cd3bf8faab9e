package xla

import (
	"errors"
	"math"
	"testing"

	"github.com/gomlx/compute/gobackend"
	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kvpage"
	"terrace/model"
)

func TestTokenBucket(t *testing.T) {
	for n, want := range map[int]int{0: 64, 1: 64, 64: 64, 65: 80, 96: 96, 97: 112, 128: 128, 129: 160, 1500: 1536, 1537: 1792, 2048: 2048} {
		if got := tokenBucket(n); got != want {
			t.Errorf("%d tokens: bucket %d, want %d", n, got, want)
		}
	}
	for n, want := range map[int]int{0: 1, 1: 1, 2: 2, 3: 4, 48: 64, 512: 512, 513: 1024} {
		if got := roundUp(n, 1); got != want {
			t.Errorf("%d rows: bucket %d, want %d", n, got, want)
		}
	}
}

func testBackend(t *testing.T, c model.Config) *backend {
	t.Helper()
	d, err := gobackend.New("")
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBackend("gomlx:go", &model.Model{Config: c, Params: model.Params{Layers: make([]model.LayerParams, len(c.Layer))}}, model.BackendOptions{}, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b.(*backend)
}

// headsConfig has four query heads over two KV heads of two dimensions.
var headsConfig = model.Config{Layer: []model.LayerConfig{{Attention: model.Attention{Heads: 4, KVHeads: 2, KeyDim: 2, ValDim: 2, Scale: 0.5, Window: 6}}}}

// seq is a sequence of queries at positions over pages whose keys and values encode head and position; the second head's
// view has lost a token.
func seq(pos ...int32) attention.Seq {
	s := attention.Seq{Pos: pos, Views: make([]attention.View, 2)}
	l := kvpage.Layout{K: kvpage.F32, V: kvpage.F32, KeyDim: 2, ValueDim: 2, Tokens: 16}
	for g := range s.Views {
		page := attention.Page{Data: make([]byte, l.PageBytes())}
		for p := range 12 {
			if g == 1 && p == 9 {
				continue
			}
			kvpage.PutK(l, page.Data, page.N, []float32{float32(p%5) - 1, float32(g + p%3)})
			kvpage.PutV(l, page.Data, page.N, []float32{float32(p + 100*g), 1})
			page.Pos, page.N = append(page.Pos, int32(p)), page.N+1
		}
		s.Views[g] = attention.View{Layout: l, Pages: []attention.Page{page}}
	}
	return s
}

func queries(n int) *tensor.Dense {
	x := make([]float32, n*8)
	for i := range x {
		x[i] = float32(i%7)/3 - 1
	}
	return tensor.New(tensor.WithShape(n, 8), tensor.WithBacking(x))
}

// plain is one row and head of attention by its definition; weights by view order.
func plain(s *attention.Seq, q []float32, g int, pos int32, selected map[int]bool) (out [2]float64, weights []float64) {
	page := &s.Views[g].Pages[0]
	weights = make([]float64, page.N)
	var sum float64
	for j := range page.N {
		if d := pos - page.Pos[j]; d < 0 || d >= 6 || selected != nil && !selected[j] {
			continue
		}
		var k [2]float32
		kvpage.ReadK(s.Views[g].Layout, page.Data, j, k[:])
		weights[j] = math.Exp(0.5 * float64(q[0]*k[0]+q[1]*k[1]))
		sum += weights[j]
	}
	for j := range page.N {
		if sum > 0 {
			weights[j] /= sum
		}
		var v [2]float32
		kvpage.ReadV(s.Views[g].Layout, page.Data, j, v[:])
		out[0] += weights[j] * float64(v[0])
		out[1] += weights[j] * float64(v[1])
	}
	return out, weights
}

// TestAttend compares outputs and weights with the definition: windows, holes, selections, rows that see nothing, several
// rows and blocks, sums from a row on, and weights of each row.
func TestAttend(t *testing.T) {
	b := testBackend(t, headsConfig)
	for name, change := range map[string]func(*attention.Seq){
		"plain":   func(*attention.Seq) {},
		"select":  func(s *attention.Seq) { s.Select = [][]int32{{2, 7, 8}, nil} },
		"sums":    func(s *attention.Seq) { s.ColumnSums = &attention.ColumnSums{FromRow: 1, Sum: sums(4, 12, 11)} },
		"weights": func(s *attention.Seq) { s.ColumnSums = &attention.ColumnSums{FromRow: 1, Rows: sums(4, 24, 22)} },
	} {
		t.Run(name, func(t *testing.T) {
			s := []attention.Seq{seq(8, 11, 40)}
			change(&s[0])
			q := queries(3)
			got, err := b.Attend(&model.Pass{Pos: s[0].Pos}, 0, q, s)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, &s[0], values(q), values(got))
		})
	}
}

func sums(heads, even, odd int) [][]float32 {
	out := make([][]float32, heads)
	for h := range out {
		out[h] = make([]float32, []int{even, even, odd, odd}[h])
	}
	return out
}

func compare(t *testing.T, s *attention.Seq, q, got []float32) {
	for head := range 4 {
		g := head / 2
		var selected map[int]bool
		if s.Select != nil && s.Select[g] != nil {
			selected = map[int]bool{}
			for _, j := range s.Select[g] {
				selected[int(j)] = true
			}
		}
		total := make([]float64, s.Views[g].Tokens())
		for r, pos := range s.Pos {
			out, weights := plain(s, q[(r*4+head)*2:], g, pos, selected)
			for d := range out {
				near(t, "output", float64(got[(r*4+head)*2+d]), out[d])
			}
			for j, w := range weights {
				if s.ColumnSums != nil && r >= s.ColumnSums.FromRow {
					total[j] += w
					if s.ColumnSums.Rows != nil {
						near(t, "weight", float64(s.ColumnSums.Rows[head][(r-s.ColumnSums.FromRow)*len(total)+j]), w)
					}
				}
			}
		}
		if s.ColumnSums != nil && s.ColumnSums.Sum != nil {
			for j := range total {
				near(t, "sum of weights", float64(s.ColumnSums.Sum[head][j]), total[j])
			}
		}
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-5*math.Max(1, math.Abs(want))) {
		t.Errorf("%s %g, want %g", what, got, want)
	}
}

// TestUnsupported checks that what the backend does not do is said, not done otherwise.
func TestUnsupported(t *testing.T) {
	b := testBackend(t, headsConfig)
	s := []attention.Seq{seq(11)}
	s[0].Sparse = &attention.Sparse{Heads: make([]attention.HeadMask, 4)}
	if _, err := b.Attend(&model.Pass{Pos: s[0].Pos}, 0, queries(1), s); !errors.Is(err, model.ErrUnsupported) {
		t.Errorf("sparse mask: %v, want ErrUnsupported", err)
	}
	d, err := gobackend.New("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newBackend("gomlx:go", &model.Model{Config: model.Config{Positions: model.Positions{LogN: true}}}, model.BackendOptions{}, d); !errors.Is(err, model.ErrUnsupported) {
		t.Errorf("LogN: %v, want ErrUnsupported", err)
	}
}
