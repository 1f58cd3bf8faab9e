package bert

import (
	"context"
	"math"

	"terrace/internal/kernels"
)

// passTokens is how many tokens go through the layers together: their rows fill the matrix kernels, and 512 rows of MiniLM's
// widest activations take 3 MB.
const passTokens = 512

// scratch is reused from call to call.
type scratch struct {
	x, q, k, v, y, u []float32
	scores           [][]float32 // one a worker
}

func sized(buf []float32, n int) []float32 {
	if cap(buf) < n {
		return make([]float32, n)
	}
	return buf[:n]
}

// atOnce is how many texts EmbedEach computes before it looks whether they are still wanted.
const atOnce = 16

// EmbedEach is Embed of some texts at a time, until ctx ends: each text's embedding is handed to f, in order.
func (e *Encoder) EmbedEach(ctx context.Context, texts [][]int32, f func(i int, v []float32)) error {
	for from := 0; from < len(texts); from += atOnce {
		if err := ctx.Err(); err != nil {
			return err
		}
		vectors, err := e.Embed(texts[from:min(len(texts), from+atOnce)])
		if err != nil {
			return err
		}
		for i, v := range vectors {
			f(from+i, v)
		}
	}
	return nil
}

// Embed gives the embedding of each text, [Hidden] floats of length 1, in order. Errors wrap ErrTooLong or ErrToken.
func (e *Encoder) Embed(texts [][]int32) ([][]float32, error) {
	if err := e.check(texts); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([][]float32, 0, len(texts))
	for len(texts) > 0 {
		n, rows := 0, 0
		for n < len(texts) && (n == 0 || rows+len(texts[n]) <= passTokens) {
			rows += len(texts[n])
			n++
		}
		out = append(out, e.pass(texts[:n], rows)...)
		texts = texts[n:]
	}
	return out, nil
}

// span is one text's rows in a pass.
type span struct{ from, n int }

// pass takes texts of that many rows in all through the layers.
func (e *Encoder) pass(texts [][]int32, rows int) [][]float32 {
	d, w := e.Hidden, &e.ws
	w.x, w.q, w.k, w.v, w.y = sized(w.x, rows*d), sized(w.q, rows*d), sized(w.k, rows*d), sized(w.v, rows*d), sized(w.y, rows*d)
	w.u = sized(w.u, rows*e.FFN)
	spans := e.lookUp(texts)
	for i := range e.params.layers {
		l := &e.params.layers[i]
		e.matmul(w.x, rows, part{l.q, w.q}, part{l.k, w.k}, part{l.v, w.v})
		e.attend(spans)
		e.matmul(w.y, rows, part{l.out, w.q})
		e.addNorm(w.x, w.q, l.outNorm)
		e.matmul(w.x, rows, part{l.up, w.u})
		e.pool.Run(rows, func(_, r int) { e.act(w.u[r*e.FFN : (r+1)*e.FFN]) })
		e.matmul(w.u, rows, part{l.down, w.y})
		e.addNorm(w.x, w.y, l.ffnNorm)
	}
	out := make([][]float32, len(texts))
	for i, s := range spans {
		out[i] = e.pooled(s)
	}
	return out
}

// lookUp fills x with the sum of the embeddings of token, position and segment, normalised.
func (e *Encoder) lookUp(texts [][]int32) []span {
	d, p, x := e.Hidden, &e.params, e.ws.x
	spans := make([]span, 0, len(texts))
	at, position := 0, make([]float32, d)
	for _, ids := range texts {
		spans = append(spans, span{at, len(ids)})
		for i, id := range ids {
			row := x[at*d : (at+1)*d]
			p.tokens.Row(row, int(id))
			p.positions.Row(position, i)
			kernels.Add(row, p.segment)
			kernels.Add(row, position)
			kernels.LayerNorm(row, row, p.norm.w, p.norm.b, e.Eps)
			at++
		}
	}
	return spans
}

// part is one product of a matmul.
type part struct {
	linear
	dst []float32
}

// matmul computes dst = W x + b for all rows of x.
func (e *Encoder) matmul(x []float32, rows int, parts ...part) {
	products := make([]kernels.Product, len(parts))
	for i, p := range parts {
		products[i] = kernels.Product{W: p.w, Dst: p.dst}
	}
	e.pool.MatMul(kernels.Exact, x, rows, products...)
	for _, p := range parts {
		width := len(p.b)
		e.pool.Run(rows, func(_, r int) { kernels.Add(p.dst[r*width:(r+1)*width], p.b) })
	}
}

// addNorm is x = norm(x + y), row by row.
func (e *Encoder) addNorm(x, y []float32, n layerNorm) {
	d := e.Hidden
	e.pool.Run(len(x)/d, func(_, r int) {
		row := x[r*d : (r+1)*d]
		kernels.Add(row, y[r*d:(r+1)*d])
		kernels.LayerNorm(row, row, n.w, n.b, e.Eps)
	})
}

// attend writes softmax(q·kᵀ/√d)·v of every text to y: each row sees all rows of its own text.
func (e *Encoder) attend(spans []span) {
	w, d, dim := &e.ws, e.Hidden, e.Hidden/e.Heads
	scale := float32(1 / math.Sqrt(float64(dim)))
	for len(w.scores) < e.pool.Threads() {
		w.scores = append(w.scores, make([]float32, e.Positions))
	}
	for _, s := range spans {
		e.pool.Run(s.n*e.Heads, func(worker, task int) {
			h, r := task/s.n*dim, (s.from+task%s.n)*d
			q, scores := w.q[r+h:r+h+dim], w.scores[worker][:s.n]
			for i := range scores {
				at := (s.from+i)*d + h
				scores[i] = scale * kernels.Dot(q, w.k[at:at+dim])
			}
			kernels.Softmax(scores)
			out := w.y[r+h : r+h+dim]
			clear(out)
			for i, p := range scores {
				at := (s.from+i)*d + h
				kernels.Axpy(out, p, w.v[at:at+dim])
			}
		})
	}
}

// pooled makes one vector of length 1 of a text's rows.
func (e *Encoder) pooled(s span) []float32 {
	d := e.Hidden
	out := make([]float32, d)
	if e.Pooling == PoolCLS {
		copy(out, e.ws.x[s.from*d:(s.from+1)*d])
	} else {
		for r := s.from; r < s.from+s.n; r++ {
			kernels.Add(out, e.ws.x[r*d:(r+1)*d])
		}
	}
	var square float64
	for _, f := range out {
		square += float64(f) * float64(f)
	}
	if square > 0 {
		kernels.Scale(out, float32(1/math.Sqrt(square)))
	}
	return out
}

// Cosine is the cosine of two embeddings of length 1.
func Cosine(a, b []float32) float64 {
	var sum float64
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}
