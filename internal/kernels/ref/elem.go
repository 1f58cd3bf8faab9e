package ref

import "math"

// RMSNorm writes x / sqrt(mean(x²) + eps) · w to dst; a nil w is all ones.
func RMSNorm(dst, x, w []float32, eps float32) {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+float64(eps))
	for i, v := range x {
		y := float64(v) * scale
		if w != nil {
			y *= float64(w[i])
		}
		dst[i] = float32(y)
	}
}

// RMSScale is 1 / sqrt(mean(x²) + eps).
func RMSScale(x []float32, eps float32) float32 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return float32(1 / math.Sqrt(sum/float64(len(x))+float64(eps)))
}

// MulScale writes x · s · w to dst.
func MulScale(dst, x, w []float32, s float32) {
	for i, v := range x {
		dst[i] = v * s * w[i]
	}
}

// LayerNorm writes (x - mean) / sqrt(var + eps) · w + b to dst; nil w and b are ones and zeros.
func LayerNorm(dst, x, w, b []float32, eps float32) {
	var sum, sq float64
	for _, v := range x {
		sum += float64(v)
	}
	mean := sum / float64(len(x))
	for _, v := range x {
		sq += (float64(v) - mean) * (float64(v) - mean)
	}
	scale := 1 / math.Sqrt(sq/float64(len(x))+float64(eps))
	for i, v := range x {
		y := (float64(v) - mean) * scale
		if w != nil {
			y *= float64(w[i])
		}
		if b != nil {
			y += float64(b[i])
		}
		dst[i] = float32(y)
	}
}

// Add adds x to dst.
func Add(dst, x []float32) {
	for i, v := range x {
		dst[i] += v
	}
}

// Mul multiplies dst by x.
func Mul(dst, x []float32) {
	for i, v := range x {
		dst[i] *= v
	}
}

// Scale multiplies x by s.
func Scale(x []float32, s float32) {
	for i := range x {
		x[i] *= s
	}
}

// Axpy adds a·x to dst.
func Axpy(dst []float32, a float32, x []float32) {
	for i, v := range x {
		dst[i] += a * v
	}
}

// Dot is the sum of x·y.
func Dot(x, y []float32) float32 {
	var sum float64
	for i, v := range x {
		sum += float64(v) * float64(y[i])
	}
	return float32(sum)
}

// SiluMul writes gate / (1 + e^-gate) · up to dst.
func SiluMul(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = float32(float64(g) / (1 + math.Exp(-float64(g))) * float64(up[i]))
	}
}

// SigmoidMul writes 1 / (1 + e^-gate) · up to dst.
func SigmoidMul(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = float32(1 / (1 + math.Exp(-float64(g))) * float64(up[i]))
	}
}

// ClampedMul writes (u+1) · g / (1 + e^-alpha·g) to dst, with g = min(gate, limit) and u = up within ±limit.
func ClampedMul(dst, gate, up []float32, alpha, limit float32) {
	for i, g := range gate {
		g = min(g, limit)
		u := min(max(up[i], -limit), limit)
		dst[i] = float32((float64(u) + 1) * float64(g) / (1 + math.Exp(-float64(alpha*g))))
	}
}

// GeluMul writes gelu(gate) · up to dst, gelu in its tanh form.
func GeluMul(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = float32(geluTanh(float64(g)) * float64(up[i]))
	}
}

func geluTanh(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

// Gelu replaces x by gelu(x) in its tanh form.
func Gelu(x []float32) {
	for i, v := range x {
		x[i] = float32(geluTanh(float64(v)))
	}
}

// GeluErf replaces x by x·Φ(x), gelu in its exact form.
func GeluErf(x []float32) {
	for i, v := range x {
		x[i] = float32(0.5 * float64(v) * math.Erfc(-float64(v)/math.Sqrt2))
	}
}

// GeluErfMul writes gate·Φ(gate) · up to dst.
func GeluErfMul(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = float32(0.5 * float64(g) * math.Erfc(-float64(g)/math.Sqrt2) * float64(up[i]))
	}
}

// ReLU replaces negative numbers by zero; NaN stays.
func ReLU(x []float32) {
	for i, v := range x {
		if v < 0 {
			x[i] = 0
		}
	}
}

// Softcap replaces x by cap·tanh(x/cap).
func Softcap(x []float32, cap float32) {
	for i, v := range x {
		x[i] = float32(float64(cap) * math.Tanh(float64(v)/float64(cap)))
	}
}

// Softmax replaces x by e^x / Σ e^x.
func Softmax(x []float32) {
	if len(x) == 0 {
		return
	}
	m := Max(x)
	var sum float64
	for _, v := range x {
		sum += math.Exp(float64(v) - float64(m))
	}
	for i, v := range x {
		x[i] = float32(math.Exp(float64(v)-float64(m)) / sum)
	}
}

// Max is the largest number of x, -Inf of none; NaN anywhere makes it NaN.
func Max(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

// MaxAbs is the largest magnitude of x, 0 of none; NaN anywhere makes it NaN.
func MaxAbs(x []float32) float32 {
	var m float32
	for _, v := range x {
		m = max(m, float32(math.Abs(float64(v))))
	}
	return m
}

// RopeNeox rotates the first rot numbers of each of the heads of x [heads, d]: number i with number i + rot/2 by the
// angle whose cosine and sine are cos[i], sin[i].
func RopeNeox(x []float32, heads, d, rot int, cos, sin []float32) {
	half := rot / 2
	for h := range heads {
		v := x[h*d : h*d+rot]
		for i := range half {
			a, b := float64(v[i]), float64(v[i+half])
			c, s := float64(cos[i]), float64(sin[i])
			v[i], v[i+half] = float32(a*c-b*s), float32(b*c+a*s)
		}
	}
}

// RopeNorm rotates the first rot numbers of each of the heads of x [heads, d]: number 2i with number 2i+1 by the angle
// whose cosine and sine are cos[i], sin[i].
func RopeNorm(x []float32, heads, d, rot int, cos, sin []float32) {
	for h := range heads {
		v := x[h*d : h*d+rot]
		for i := range rot / 2 {
			a, b := float64(v[2*i]), float64(v[2*i+1])
			c, s := float64(cos[i]), float64(sin[i])
			v[2*i], v[2*i+1] = float32(a*c-b*s), float32(b*c+a*s)
		}
	}
}
