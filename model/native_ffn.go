package model

import "terrace/internal/kernels"

// feedForward computes the layer's feed-forward network for the normalised rows of in [n, D] into out.
func (b *native) feedForward(ph arithmetic, l *LayerParams, layer int, out product, in []float32, n int, norm NormParams) error {
	c := &b.m.Layer[layer]
	b.rows.clamp, b.rows.curve, b.rows.sparse = b.m.Clamp, c.Curve, nil
	if c.Sparse {
		b.rows.sparse = &c.Deviations
	}
	if l.Beside != nil {
		return b.besideExperts(ph, layer, out, in, n, norm)
	}
	if c.MoE {
		in, err := b.normed(in, n, norm)
		if err != nil {
			return err
		}
		return b.mixture(ph, layer, out, in, n)
	}
	out.w = l.Down
	return b.dense(ph, l.Gate, l.Up, out, in, n, norm)
}

// dense is one (gated) network: down(act(gate(in))·up(in)), in normalised first where there is a norm.
func (b *native) dense(ph arithmetic, gate, up *Linear, down product, in []float32, n int, norm NormParams) error {
	if ph.parts(n, up) {
		if err := b.dense(ph.first(), gate, up, down, in, ph.decode, norm); err != nil {
			return err
		}
		return b.dense(ph.last(), gate, up, down.from(ph.decode), in[ph.decode*up.Cols:], n-ph.decode, norm)
	}
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
	if t.sparse != nil && g != nil {
		b.sparsify(g, n, width, float64(*t.sparse))
	}
	t.act, t.dst, t.gate, t.up, t.rows, t.width = b.m.Act, u, g, u, n, width
	b.pool.Run(t.tasks(n), t.activationRows)
	return b.matmul(ph, u, n, down)
}

// gates are the activations that stand between a gate and the rest, as functions of numbers one by one.
var gates = map[Activation]func(dst, gate, up []float32){
	SiLU: kernels.SiluMul, GELUTanh: kernels.GeluMul, GELU: kernels.GeluErfMul,
}

// denseInOne is dense as one job of the pool, where the kernels have it and there are no biases; bit for bit the same.
func (b *native) denseInOne(ph arithmetic, gate, up *Linear, down product, in []float32, n int, norm NormParams) (done bool, err error) {
	act := gates[b.m.Act]
	if gate == nil || act == nil || b.m.Inputs != nil || b.rows.sparse != nil {
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
	return b.pool.MatMulGated(ph.phase, in, n, &b.gated), nil
}
