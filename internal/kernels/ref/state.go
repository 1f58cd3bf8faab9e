package ref

// State kernels work on a strip of a head's state: rows stride numbers apart, as many numbers of each as out has. A step reads the rows
// of from and writes those of to, which may be from.

// StateDot writes Σ_i x[i]·from[i] to out.
func StateDot(out, from []float32, stride int, x []float32) {
	clear(out)
	for i, f := range x {
		row := from[i*stride:]
		for j := range out {
			out[j] += f * row[j]
		}
	}
}

// DeltaStep is a step of the gated delta rule: d = beta·(v − g·dots); to[i] = g·from[i] + k[i]·d; out = Σ q[i]·to[i],
// dots = Σ next[i]·to[i].
func DeltaStep(out, dots, to, from []float32, toStride, fromStride int, k, q, next, v []float32, g, beta float32) {
	deltaStep(out, dots, to, from, toStride, fromStride, k, q, next, v, nil, g, g, beta)
}

// DeltaStepEach is DeltaStep with a decay of each row: d = beta·(v − dots); to[i] = g[i]·from[i] + k[i]·d.
func DeltaStepEach(out, dots, to, from []float32, toStride, fromStride int, k, q, next, v, g []float32, beta float32) {
	deltaStep(out, dots, to, from, toStride, fromStride, k, q, next, v, g, 0, 1, beta)
}

func deltaStep(out, dots, to, from []float32, toStride, fromStride int, k, q, next, v, each []float32, g, before, beta float32) {
	for j := range out {
		d := beta * (v[j] - before*dots[j])
		var o, a float32
		for i, x := range k {
			if each != nil {
				g = each[i]
			}
			s := g*from[i*fromStride+j] + x*d
			to[i*toStride+j] = s
			o += q[i] * s
			a += next[i] * s
		}
		out[j], dots[j] = o, a
	}
}

// SSMStep is a step of Mamba-2: to[i] = g·from[i] + b[i]·dt·u; out = Σ c[i]·to[i] + skip·u.
func SSMStep(out, to, from []float32, toStride, fromStride int, b, c, u []float32, g, dt, skip float32) {
	for j := range out {
		d := dt * u[j]
		var o float32
		for i, x := range b {
			s := g*from[i*fromStride+j] + x*d
			to[i*toStride+j] = s
			o += c[i] * s
		}
		out[j] = o + skip*u[j]
	}
}

// Convolve writes bias + Σ_j w[j]·taps[j] to dst, which may be one of the taps; rows of w lie stride numbers apart, a nil bias is 0.
func Convolve(dst []float32, taps [][]float32, w []float32, stride int, bias []float32) {
	for c := range dst {
		var sum float32
		if bias != nil {
			sum = bias[c]
		}
		for j, x := range taps {
			sum += w[j*stride+c] * x[c]
		}
		dst[c] = sum
	}
}
