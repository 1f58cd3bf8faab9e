package model

import (
	"math"
	"slices"

	"terrace/internal/kernels"
)

// feedForward computes the layer's feed-forward network for the normalised rows of in [n, D] into out.
func (b *native) feedForward(ph kernels.Phase, l *LayerParams, layer int, out product, in []float32, n int, norm NormParams) error {
	if b.m.Layer[layer].MoE {
		in, err := b.normed(in, n, norm)
		if err != nil {
			return err
		}
		return b.mixture(ph, l, out, in, n)
	}
	out.w = l.Down
	return b.dense(ph, l.Gate, l.Up, out, in, n, norm)
}

// dense is one (gated) network: down(act(gate(in))·up(in)), in normalised first where there is a norm.
func (b *native) dense(ph kernels.Phase, gate, up *Linear, down product, in []float32, n int, norm NormParams) error {
	if done, err := b.denseInOne(ph, gate, up, down, in, n, norm); done || err != nil {
		return err
	}
	width := up.Rows
	u := b.ws.floats(&b.ws.up, n*width)
	var g []float32
	if gate != nil {
		g = b.ws.floats(&b.ws.gate, n*width)
		if err := b.matmulNormed(ph, in, n, norm, product{w: gate, dst: g}, product{w: up, dst: u}); err != nil {
			return err
		}
	} else if err := b.matmulNormed(ph, in, n, norm, product{w: up, dst: u}); err != nil {
		return err
	}
	t := &b.rows
	t.act, t.dst, t.gate, t.up, t.rows, t.width = b.m.Act, u, g, u, n, width
	b.pool.Run(t.tasks(n), t.activationRows)
	return b.matmul(ph, u, n, down)
}

// gates are the activations that stand between a gate and the rest, as functions of numbers one by one.
var gates = map[Activation]func(dst, gate, up []float32){
	SiLU: kernels.SiluMul, GELUTanh: kernels.GeluMul, GELU: kernels.GeluErfMul,
}

// denseInOne is dense as one job of the pool, where the kernels have it and there are no biases; bit for bit the same.
func (b *native) denseInOne(ph kernels.Phase, gate, up *Linear, down product, in []float32, n int, norm NormParams) (done bool, err error) {
	act := gates[b.m.Act]
	if gate == nil || act == nil || b.m.Inputs != nil {
		return false, nil
	}
	g, bias, err := gate.Matrix()
	if err != nil || bias != nil {
		return false, err
	}
	u, bias, err := up.Matrix()
	if err != nil || bias != nil {
		return false, err
	}
	d, bias, err := down.w.Matrix()
	if err != nil || bias != nil {
		return false, err
	}
	fused, err := b.rowNorm(norm)
	if err != nil || (fused == nil && !norm.W.Absent()) {
		return false, err
	}
	b.gated = kernels.Gated{Gate: g, Up: u, Act: act, Down: kernels.Product{W: d, Dst: down.dst, Add: down.add}, Norm: fused}
	return b.pool.MatMulGated(ph, in, n, &b.gated), nil
}

// moeScratch groups rows by expert.
type moeScratch struct {
	in, out []float32
	rows    [][]int   // rows of each expert
	share   []float32 // [n, experts] weight of an expert for a row, 0 = not used
	order   []int
}

// mixture routes each row to its top-k experts and adds their outputs, weighted by the router's softmax (renormalised over
// the chosen where NormTopK says so). Rows of one expert are computed together; a row's sum runs over experts in order, so
// that it does not depend on the other rows.
func (b *native) mixture(ph kernels.Phase, l *LayerParams, out product, in []float32, n int) error {
	m, s := b.m, &b.gather
	logits := b.ws.floats(&b.ws.router, n*m.Experts)
	if err := b.matmul(ph, in, n, product{w: l.Router, dst: logits}); err != nil {
		return err
	}
	s.route(logits, n, m.Experts, m.TopK, m.NormTopK)
	if !out.add {
		clear(out.dst[:n*m.Hidden])
	}
	for e := range m.Experts {
		rows := s.rows[e]
		if len(rows) == 0 {
			continue
		}
		s.in = slices.Grow(s.in[:0], len(rows)*m.Hidden)[:len(rows)*m.Hidden]
		s.out = slices.Grow(s.out[:0], len(rows)*m.Hidden)[:len(rows)*m.Hidden]
		for i, r := range rows {
			copy(s.in[i*m.Hidden:(i+1)*m.Hidden], in[r*m.Hidden:(r+1)*m.Hidden])
		}
		if err := b.dense(ph, l.ExpertGate[e], l.ExpertUp[e], product{w: l.ExpertDown[e], dst: s.out}, s.in, len(rows), NormParams{}); err != nil {
			return err
		}
		for i, r := range rows {
			kernels.Axpy(out.dst[r*m.Hidden:(r+1)*m.Hidden], s.share[r*m.Experts+e], s.out[i*m.Hidden:(i+1)*m.Hidden])
		}
	}
	return nil
}

// route fills rows and share from the router's logits [n, experts].
func (s *moeScratch) route(logits []float32, n, experts, topK int, normalise bool) {
	if len(s.rows) != experts {
		s.rows, s.order = make([][]int, experts), make([]int, experts)
	}
	for e := range s.rows {
		s.rows[e] = s.rows[e][:0]
	}
	s.share = slices.Grow(s.share[:0], n*experts)[:n*experts]
	clear(s.share)
	for r := range n {
		row := logits[r*experts : (r+1)*experts]
		peak := slices.Max(row)
		var sum float64
		for _, v := range row {
			sum += math.Exp(float64(v - peak))
		}
		for i := range s.order {
			s.order[i] = i
		}
		slices.SortFunc(s.order, func(a, b int) int {
			switch {
			case row[a] > row[b]:
				return -1
			case row[a] < row[b]:
				return 1
			}
			return a - b
		})
		var chosen float64
		for _, e := range s.order[:topK] {
			chosen += math.Exp(float64(row[e]-peak)) / sum
		}
		for _, e := range s.order[:topK] {
			w := math.Exp(float64(row[e]-peak)) / sum
			if normalise {
				w /= chosen
			}
			s.share[r*experts+e] = float32(w)
			s.rows[e] = append(s.rows[e], r)
		}
	}
}
