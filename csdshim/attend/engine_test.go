package attend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/csdshim"
	"terrace/csdshim/profiles"
	"terrace/internal/kvpage"
)

// text is a sequence's keys and values of one layer as float64, and as stored.
type text struct {
	shape        csdshim.AttendShape
	k, v         [][][]float64 // [tokens][heads][dim]
	keys, values []byte
}

func newText(e kvpage.Elem, m, n, tokens int, seed uint64) *text {
	x := &text{shape: csdshim.AttendShape{Layers: 2, Heads: 2, KeyDim: 32, ValueDim: 24, ElemBytes: e.Bits() / 8, TokenGroup: n, EmbeddingGroup: m, Elem: e}}
	r := rand.New(rand.NewPCG(seed, 1))
	row := func(dim int, to *[]byte) []float64 {
		b, wide := make([]byte, dim*x.shape.ElemBytes), make([]float32, dim)
		for i := range wide {
			wide[i] = float32(r.NormFloat64())
		}
		kvpage.PutRow(e, b, wide)
		kvpage.ReadRow(e, b, wide) // as rounded
		*to = append(*to, b...)
		out := make([]float64, dim)
		for i, f := range wide {
			out[i] = float64(f)
		}
		return out
	}
	for range tokens {
		var k, v [][]float64
		for range x.shape.Heads {
			k, v = append(k, row(32, &x.keys)), append(v, row(24, &x.values))
		}
		x.k, x.v = append(x.k, k), append(x.v, v)
	}
	return x
}

// tail is the tokens from one on, up to another, for a layer.
func (x *text) tail(layer, from, to int) csdshim.Tail {
	k, v := x.shape.Heads*x.shape.KeyRowBytes(), x.shape.Heads*x.shape.ValueRowBytes()
	return csdshim.Tail{Seq: 1, Layer: layer, At: from, Tokens: to - from, Keys: x.keys[from*k : to*k], Values: x.values[from*v : to*v]}
}

// counted is what Algorithm 1 wants of one head.
type counted struct{ pages, read, scored, attended int }

// sparf is Algorithm 1 of arXiv 2409.04992 in float64 for one KV head's group, as written there with the readings of this
// project (heads of a group choose together; S and the mean count the newest token; lowest index first among equals).
func (x *text) sparf(head, n int, q [][]float64, scale float64, r, k, l, window int) (out [][]float64, lse []float64, c counted) {
	dim := x.shape.KeyDim
	var chosen []int
	share := make([]float64, len(q))
	for i := range share {
		share[i] = 1
	}
	if r == 0 || k >= n {
		for t := max(0, n-windowOf(window, n)); t < n; t++ {
			chosen = append(chosen, t)
		}
	} else {
		mag := make([]float64, dim)
		for _, row := range q {
			for d, f := range row {
				mag[d] += math.Abs(f)
			}
		}
		dims := best(mag, r)
		sum, weights := make([]float64, n), make([][]float64, len(q))
		for i, row := range q {
			var part, whole float64
			for _, f := range row {
				whole += math.Abs(f)
			}
			for _, d := range dims {
				part += math.Abs(row[d])
			}
			s := make([]float64, n)
			for t := range s {
				for _, d := range dims {
					s[t] += row[d] * x.k[t][head][d]
				}
				s[t] /= math.Sqrt(float64(dim) * part / whole)
			}
			weights[i], _ = softmax(s)
			for t, w := range weights[i] {
				sum[t] += w
			}
		}
		for t := n - l; t < n; t++ {
			sum[t] += float64(len(q))
		}
		chosen = best(sum, k)
		for i := range q {
			share[i] = 0
			for _, t := range chosen {
				share[i] += weights[i][t]
			}
		}
		c.scored = n
		groups := map[int]bool{}
		for _, d := range dims {
			groups[d/x.shape.EmbeddingGroup] = true
		}
		c.pages += len(groups) * (n / x.shape.EmbeddingTokens(4096))
	}
	c.attended = len(chosen)
	full := map[int]bool{}
	for _, t := range chosen {
		if g := t / x.shape.TokenGroup; (g+1)*x.shape.TokenGroup <= n {
			full[g] = true
		}
	}
	if c.pages += 2 * len(full); x.shape.Paired {
		c.pages -= len(full)
	}
	each := x.shape.EmbeddingTokens(4096)
	c.read = c.pages
	if r > 0 && k < n { // keys of tokens that no embedding page has yet are read to be scored
		tail := n/x.shape.TokenGroup - n/each*each/x.shape.TokenGroup
		for g := range full {
			if g*x.shape.TokenGroup >= n/each*each { // their keys, and values beside them, are at hand
				c.read--
			}
		}
		c.read += tail
	}
	for i, row := range q {
		s := make([]float64, len(chosen))
		for j, t := range chosen {
			for d, f := range row {
				s[j] += f * x.k[t][head][d] * scale
			}
		}
		w, norm := softmax(s)
		o := make([]float64, x.shape.ValueDim)
		for d := range o {
			for j, t := range chosen {
				o[d] += share[i] * w[j] * x.v[t][head][d]
			}
			for t := range n {
				o[d] += (1 - share[i]) * x.v[t][head][d] / float64(n)
			}
		}
		out, lse = append(out, o), append(lse, norm)
	}
	return out, lse, c
}

func windowOf(window, n int) int {
	if window == 0 {
		return n
	}
	return window
}

func softmax(s []float64) (w []float64, lse float64) {
	top := slices.Max(s)
	sum := 0.0
	for _, f := range s {
		sum += math.Exp(f - top)
	}
	for _, f := range s {
		w = append(w, math.Exp(f-top)/sum)
	}
	return w, top + math.Log(sum)
}

// best are the indices of the k largest, ascending.
func best(x []float64, k int) []int {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case x[a] > x[b]:
			return -1
		case x[a] < x[b]:
			return 1
		}
		return 0
	})
	order = order[:k]
	slices.Sort(order)
	return order
}

func openSession(t *testing.T, dir, profile string) (*csdshim.Drive, *csdshim.Session) {
	t.Helper()
	p, err := profiles.Load(profile)
	if err != nil {
		t.Fatal(err)
	}
	d, err := csdshim.OpenDrive(dir, csdshim.Options{Profile: p, CapacityBytes: 8 << 20, NoSync: true, Attention: New()})
	if err != nil {
		t.Fatal(err)
	}
	return d, d.Connect([16]byte{1}, 0)
}

// TestAttend compares what the drive computes and counts with Algorithm 1 in float64, for both types, page groups of several sizes, tokens in the group
// buffer and past the last embedding page, dense layers and windows; and again after a restart.
func TestAttend(t *testing.T) {
	for i, c := range []struct {
		e                          kvpage.Elem
		m, n, tokens, r, k, l, win int
		paired                     bool
	}{
		{kvpage.F32, 8, 16, 300, 5, 40, 9, 0, false},
		{kvpage.F32, 2, 7, 1100, 8, 60, 60, 0, false},
		{kvpage.F16, 4, 32, 530, 32, 100, 1, 0, false},
		{kvpage.BF16, 8, 1, 77, 3, 20, 5, 0, false},
		{kvpage.F16, 8, 32, 300, 4, 300, 9, 0, false},
		{kvpage.F32, 8, 32, 270, 0, 0, 0, 0, false},
		{kvpage.F32, 8, 32, 270, 0, 0, 0, 100, false},
		{kvpage.F32, 8, 16, 300, 5, 40, 9, 0, true},
		{kvpage.F32, 2, 8, 1100, 8, 60, 60, 0, true},
		{kvpage.F16, 4, 32, 530, 32, 100, 1, 0, true},
		{kvpage.F16, 4, 16, 1100, 6, 60, 15, 0, true},
		{kvpage.BF16, 8, 1, 77, 3, 20, 5, 0, true},
		{kvpage.F16, 8, 32, 270, 0, 0, 0, 0, true},
		{kvpage.F16, 8, 32, 270, 0, 0, 0, 100, true},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			x, dir := newText(c.e, c.m, c.n, c.tokens+2, uint64(i)), t.TempDir()
			x.shape.Paired = c.paired
			d, s := openSession(t, dir, "instcsd")
			if err := s.OpenAttended(1, x.shape); err != nil {
				t.Fatal(err)
			}
			for layer := range 2 {
				for from := 0; from < c.tokens; from += 130 {
					tail := x.tail(layer, from, min(from+130, c.tokens))
					if _, _, err := s.Append(context.Background(), &tail); err != nil {
						t.Fatal(err)
					}
				}
			}
			for step := range 2 {
				n := c.tokens + step + 1
				m := csdshim.AttendQuery{Traced: step == 1, Tail: x.tail(1, n-1, n), Exact: true, Scale: 0.21, Window: c.win, Dims: c.r, Best: c.k, Local: c.l}
				r := rand.New(rand.NewPCG(uint64(i), uint64(step)))
				var q [][]float64
				for range 6 * 32 {
					m.Q = append(m.Q, float32(2*r.NormFloat64()))
				}
				for h := range 6 {
					row := make([]float64, 32)
					for j := range row {
						row[j] = float64(m.Q[h*32+j])
					}
					q = append(q, row)
				}
				for again := range 2 { // an answer that was lost is asked for again
					timing, got, err := s.Attend(context.Background(), &m)
					if err != nil {
						t.Fatal(err)
					}
					checkStages(t, &m, &got, timing)
					x.compare(t, &got, n, q, float64(m.Scale), c.r, c.k, c.l, c.win)
					if again == 0 && got.Work.PagesWanted > 0 && (timing.NANDNs == 0 || timing.EngineNs == 0 || timing.LinkNs == 0 || timing.TotalNs == 0) {
						t.Errorf("modelled times %+v", timing)
					}
				}
				if step == 0 {
					s.Disconnect()
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
					d, s = openSession(t, dir, "instcsd")
				}
			}
			if err := errors.Join(s.Drop(1, 0), d.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// checkStages: a request that asks for it is told when each unit worked, within the request's time.
func checkStages(t *testing.T, m *csdshim.AttendQuery, got *csdshim.Attended, timing csdshim.Timing) {
	t.Helper()
	seen := map[string]bool{}
	for i, s := range got.Stages {
		seen[s.Unit.String()] = true
		for _, o := range got.Stages[:i] {
			if o.Unit == s.Unit && o.Lane == s.Lane && s.From < o.To && o.From < s.To {
				t.Errorf("%v %d works from %d to %d ns and from %d to %d", s.Unit, s.Lane, o.From, o.To, s.From, s.To)
			}
		}
		if s.To > timing.TotalNs {
			t.Errorf("%v %d works until %d of %d ns", s.Unit, s.Lane, s.To, timing.TotalNs)
		}
	}
	if !m.Traced {
		if len(got.Stages) > 0 {
			t.Errorf("%d stages that nobody asked for", len(got.Stages))
		}
		return
	}
	want := []string{"link", "kernel"}
	if got.Work.PagesRead > 0 {
		want = append(want, "channel", "filter")
	}
	if got.Work.TokensScored > 0 {
		want = append(want, "argtopk")
	}
	for _, unit := range want {
		if !seen[unit] {
			t.Errorf("no work of the %s among %v", unit, seen)
		}
	}
}

// compare looks at all heads' outputs, norms and counts. Limits are relative to the largest output: 1e-5.
func (x *text) compare(t *testing.T, got *csdshim.Attended, n int, q [][]float64, scale float64, r, k, l, win int) {
	t.Helper()
	group, dv := len(q)/x.shape.Heads, x.shape.ValueDim
	var total counted
	worst, top := 0.0, 0.0
	for h := range x.shape.Heads {
		out, lse, c := x.sparf(h, n, q[h*group:(h+1)*group], scale, r, k, l, win)
		total.pages, total.read, total.scored, total.attended = total.pages+c.pages, total.read+c.read, total.scored+c.scored, total.attended+c.attended
		for i, o := range out {
			for d, f := range o {
				worst, top = max(worst, math.Abs(f-float64(got.Out[(h*group+i)*dv+d]))), max(top, math.Abs(f))
			}
			if e := math.Abs(lse[i] - float64(got.LogSum[h*group+i])); !(e < 1e-5) {
				t.Errorf("%d tokens, head %d: log-sum-exp off by %g", n, h*group+i, e)
			}
		}
	}
	if !(worst <= 1e-5*top) {
		t.Errorf("%d tokens: outputs off by %.2g of the largest", n, worst/top)
	}
	w := got.Work
	if int(w.TokensScored) != total.scored || int(w.TokensAttended) != total.attended || win == 0 && int(w.PagesWanted) != total.pages {
		t.Errorf("%d tokens: %+v, want %+v", n, w, total)
	}
	if divides := x.shape.EmbeddingTokens(4096)%x.shape.TokenGroup == 0; divides && win == 0 && int(w.PagesRead) != total.read {
		t.Errorf("%d tokens: %d pages read, want %d", n, w.PagesRead, total.read)
	}
}

// TestAttendRefuses: requests that contradict the sequence or themselves are errors, and change nothing.
func TestAttendRefuses(t *testing.T) {
	x := newText(kvpage.F16, 4, 32, 40, 1)
	d, s := openSession(t, t.TempDir(), "unlimited")
	defer d.Close()
	if err := s.OpenAttended(1, x.shape); err != nil {
		t.Fatal(err)
	}
	tail := x.tail(0, 0, 20)
	if _, _, err := s.Append(context.Background(), &tail); err != nil {
		t.Fatal(err)
	}
	q := make([]float32, 4*32)
	for name, m := range map[string]csdshim.AttendQuery{
		"a gap":             {Tail: x.tail(0, 25, 26), Q: q},
		"a token twice":     {Tail: x.tail(0, 5, 6), Q: q},
		"no such layer":     {Tail: x.tail(7, 20, 21), Q: q},
		"no tokens":         {Tail: x.tail(1, 0, 0), Q: q},
		"half a head":       {Tail: x.tail(0, 20, 21), Q: q[:40]},
		"heads unshared":    {Tail: x.tail(0, 20, 21), Q: q[:3*32]},
		"r too large":       {Tail: x.tail(0, 20, 21), Q: q, Dims: 33, Best: 4, Local: 1},
		"k of nothing":      {Tail: x.tail(0, 20, 21), Q: q, Dims: 3},
		"too few key bytes": {Tail: csdshim.Tail{Seq: 1, At: 20, Tokens: 1, Keys: []byte{1}}, Q: q},
	} {
		if _, _, err := s.Attend(context.Background(), &m); !errors.Is(err, csdshim.ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m := csdshim.AttendQuery{Tail: x.tail(0, 20, 21), Q: q, Scale: 1}
	if _, got, err := s.Attend(context.Background(), &m); err != nil || got.Work.TokensAttended != 42 {
		t.Errorf("after all of them: %+v, %v", got.Work, err)
	}
	other := x.shape
	other.Layers++
	if err := s.OpenAttended(1, other); !errors.Is(err, csdshim.ErrRequest) {
		t.Errorf("another shape: %v", err)
	}
	m.Tail.Seq = 9
	if _, _, err := s.Attend(context.Background(), &m); !errors.Is(err, csdshim.ErrNotFound) {
		t.Errorf("no such sequence: %v", err)
	}
}
