package quant

import "math"

// Searches for scales under given weights, as ggml-quants.c does them. x, w and levels have one length; levels, where a caller
// takes them, are those of the scale that is returned.

// meanSquare is the mean of x².
func meanSquare(x []float32) (sum float32) {
	for _, v := range x {
		sum += v * v
	}
	return sum / float32(len(x))
}

// weigh2 fills w with importance·√(spread + x²) and returns its sum: what is large counts more, zeros count too.
func weigh2(w, x, importance []float32, spread float32) (sum float32) {
	for i, v := range x {
		w[i] = importance[i] * float32(math.Sqrt(float64(spread+v*v)))
		sum += w[i]
	}
	return sum
}

// peakOf returns the largest magnitude and the value that has it.
func peakOf(x []float32) (amax, peak float32) {
	for _, v := range x {
		if a := float32(math.Abs(float64(v))); a > amax {
			amax, peak = a, v
		}
	}
	return amax, peak
}

// scalable reports whether values of that largest magnitude get a scale.
func scalable(amax float32) bool { return amax >= groupMaxEps && amax <= math.MaxFloat32 }

// fitSigned finds the scale for x ≈ scale·level, levels -top..top-1, by trying 19 scales around the one that maps the value of
// largest magnitude to -top (make_qx_quants). levels, if not nil, get level + top.
func fitSigned(x, w []float32, levels []byte, top int) float32 {
	amax, peak := peakOf(x)
	if !scalable(amax) {
		clear(levels)
		return 0
	}
	level := func(inv, v float32) int { return max(-top, min(top-1, nearest(inv*v))) }
	fit := func(inv float32) (sumLX, sumL2 float32) {
		for i, v := range x {
			l := float32(level(inv, v))
			sumLX += w[i] * v * l
			sumL2 += w[i] * l * l
		}
		return sumLX, sumL2
	}
	chosen := -float32(top) / peak
	var scale float32
	sumLX, sumL2 := fit(chosen)
	if sumL2 != 0 {
		scale = sumLX / sumL2
	}
	best := scale * sumLX
	for step := -9; step <= 9; step++ {
		inv := -(float32(top) + 0.1*float32(step)) / peak
		if sumLX, sumL2 := fit(inv); step != 0 && sumL2 > 0 && sumLX*sumLX > best*sumL2 {
			chosen, scale = inv, sumLX/sumL2
			best = scale * sumLX
		}
	}
	for i := range levels {
		levels[i] = byte(level(chosen, x[i]) + top)
	}
	return scale
}

// fitRange finds scale and minimum ≥ 0 for x ≈ scale·level - minimum, levels 0..top (make_qkx3_quants with squared errors: 37
// trials, each over the range from the best minimum so far).
func fitRange(x, w []float32, levels []byte, top float32) (scale, minimum float32) {
	lo, hi := x[0], x[0]
	var sumW, sumX float32
	for i, v := range x {
		lo, hi = min(lo, v), max(hi, v)
		sumW += w[i]
		sumX += w[i] * v
	}
	lo = min(lo, 0)
	if span := hi - lo; !(span > 0 && span <= math.MaxFloat32) {
		clear(levels)
		return 0, -lo
	}
	var trial [32]byte
	inv := top / (hi - lo)
	scale = 1 / inv
	levelsBetween(levels, x, inv, lo, top)
	best, offset := squaredMiss(x, w, levels, scale, lo), lo
	for step := range 37 {
		levelsBetween(trial[:len(x)], x, (-0.9+float32(0.05)*float32(step)+top)/(hi-offset), offset, top)
		var sumL, sumL2, sumLX float32
		for i, v := range x {
			l := float32(trial[i])
			sumL += w[i] * l
			sumL2 += w[i] * l * l
			sumLX += w[i] * l * v
		}
		det := sumW*sumL2 - sumL*sumL
		if det <= 0 {
			continue
		}
		s, m := (sumW*sumLX-sumX*sumL)/det, (sumL2*sumX-sumL*sumLX)/det
		if m > 0 {
			s, m = sumLX/sumL2, 0
		}
		if e := squaredMiss(x, w, trial[:len(x)], s, m); e < best {
			copy(levels, trial[:])
			best, scale, offset = e, s, m
		}
	}
	return scale, -offset
}

// levelsBetween fills the levels of (v - offset)·inv, 0..top.
func levelsBetween(levels []byte, x []float32, inv, offset, top float32) {
	for i, v := range x {
		l := float32(0)
		if y := inv * (v - offset); y > 0 {
			l = roundLevel(min(y, top))
		}
		levels[i] = byte(l)
	}
}

func squaredMiss(x, w []float32, levels []byte, scale, offset float32) (sum float32) {
	for i, v := range x {
		diff := float32(scale*float32(levels[i])) + offset - v
		sum += w[i] * (diff * diff)
	}
	return sum
}

// fitPositive finds the scale for x ≈ scale·level of x ≥ 0, levels 0..top: nine scales are tried, then single levels moved while
// that helps (make_qp_quants).
func fitPositive(x, w []float32, levels []byte, top int) float32 {
	var hi float32
	for _, v := range x {
		hi = max(hi, v)
	}
	if !scalable(hi) {
		clear(levels)
		return 0
	}
	miss := func(inv float32) (sum float32) {
		scale := 1 / inv
		for i, v := range x {
			diff := v - float32(scale*float32(min(top, nearest(inv*v))))
			sum += w[i] * diff * diff
		}
		return sum
	}
	chosen := float32(top) / hi
	best := miss(chosen)
	for step := -4; step <= 4; step++ {
		inv := (0.1*float32(step) + float32(top)) / hi
		if e := miss(inv); step != 0 && e < best {
			best, chosen = e, inv
		}
	}
	fit := levelFit{x: x, w: w, low: 0, high: top, levels: make([]int, len(x))}
	for i, v := range x {
		fit.levels[i] = min(top, nearest(chosen*v))
	}
	scale := fit.improve(true)
	for i, l := range fit.levels {
		levels[i] = byte(l)
	}
	return scale
}

// levelFit moves single levels while the fit of x ≈ scale·level gets better, in at most five rounds.
type levelFit struct {
	x, w      []float32
	levels    []int
	low, high int
}

// improve returns the best scale of the levels it ends with. positive: a level moves only where the others' squares sum to more
// than 0 (ggml asks so in make_qp_quants, and of the moved levels in make_q3_quants).
func (f levelFit) improve(positive bool) float32 {
	var sumLX, sumL2 float32
	for i, v := range f.x {
		l := float32(f.levels[i])
		sumLX += f.w[i] * v * l
		sumL2 += f.w[i] * l * l
	}
	for range 5 {
		changed := false
		for i, v := range f.x {
			w, l := f.w[i], float32(f.levels[i])
			lx, l2 := sumLX-w*v*l, sumL2-w*l*l
			if !(lx > 0) || positive && !(l2 > 0) {
				continue
			}
			next := max(f.low, min(f.high, nearest(v*l2/lx)))
			if next == f.levels[i] {
				continue
			}
			n := float32(next)
			lx += w * v * n
			l2 += w * n * n
			if l2 > 0 && lx*lx*sumL2 > sumLX*sumLX*l2 {
				f.levels[i], sumLX, sumL2, changed = next, lx, l2, true
			}
		}
		if !changed {
			break
		}
	}
	if !(sumL2 > 0) {
		return 0
	}
	return sumLX / sumL2
}
