package quant

import "math"

// search4 and search5 are how ggml looks for the scales of Q4_K and Q5_K.
var (
	search4 = search{top: 15, first: -1, steps: 21}
	search5 = search{top: 31, first: -0.5, steps: 16}
)

// quantizeQ4K quantises super-blocks of 256 to Q4_K: a weighted search for scale and minimum of each 32 values, whose eight
// results are then quantised to 6 bits (ggml's quantize_row_q4_K_ref).
func quantizeQ4K(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[144:], src[superBlock:] {
		var levels [superBlock]byte
		search4.superBlock(dst, src, &levels)
		packLevels4(dst, &levels)
	}
}

// packLevels4 puts 256 levels into the nibbles of a Q4_K block.
func packLevels4(dst []byte, levels *[superBlock]byte) {
	for j := 0; j < 8; j += 2 {
		for l := range 32 {
			dst[16+j*16+l] = levels[j*32+l] | levels[j*32+32+l]<<4
		}
	}
}

// quantizeQ5K is quantizeQ4K with 32 levels, whose fifth bits are kept apart (ggml's quantize_row_q5_K_ref).
func quantizeQ5K(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[176:], src[superBlock:] {
		var levels [superBlock]byte
		search5.superBlock(dst, src, &levels)
		packLevels5(dst, &levels)
	}
}

// packLevels5 puts 256 levels into the fifth bits and nibbles of a Q5_K block.
func packLevels5(dst []byte, levels *[superBlock]byte) {
	high := dst[16:48]
	clear(high)
	for j := 0; j < 8; j += 2 {
		for l := range 32 {
			a, b := levels[j*32+l], levels[j*32+32+l]
			dst[48+j*16+l] = a&15 | b&15<<4
			high[l] |= a>>4<<j | b>>4<<(j+1)
		}
	}
}

// superBlock writes the sixteen bytes of scales and minima and computes the levels of 256 values.
func (s search) superBlock(dst []byte, src []float32, levels *[superBlock]byte) {
	var scales, mins [8]float32
	var maxScale, maxMin float32
	for j := range 8 {
		scales[j], mins[j] = s.scaleMin((*[32]float32)(src[j*32:]))
		maxScale, maxMin = max(maxScale, scales[j]), max(maxMin, mins[j])
	}
	packed := packScaleMins(&scales, &mins, maxScale, maxMin)
	putHalf(dst, finiteOr(maxScale/63, src[:superBlock]))
	putHalf(dst[2:], maxMin/63)
	copy(dst[4:16], packed[:])
	s.levels(dst, src, levels)
}

// levels computes the levels of 256 values under the scales and minima that dst holds.
func (s search) levels(dst []byte, src []float32, levels *[superBlock]byte) {
	d, dmin := half(dst), half(dst[2:])
	for j := range 8 {
		sc, m := scaleMin4K(j, dst[4:16])
		scale, minimum := d*float32(sc), dmin*float32(m)
		if scale == 0 {
			continue
		}
		for l, x := range src[j*32 : j*32+32] {
			levels[j*32+l] = byte(clampLevel((x+minimum)/scale, s.top))
		}
	}
}

// packScaleMins quantises the scales and minima of eight sub-blocks to 6 bits each, in the order that scaleMin4K reads.
func packScaleMins(scales, mins *[8]float32, maxScale, maxMin float32) (out [12]byte) {
	var invScale, invMin float32
	if maxScale > 0 {
		invScale = 63 / maxScale
	}
	if maxMin > 0 {
		invMin = 63 / maxMin
	}
	var ls, lm [8]byte
	for j := range 8 {
		ls[j] = byte(min(63, nearest(invScale*scales[j])))
		lm[j] = byte(min(63, nearest(invMin*mins[j])))
	}
	return pack6(&ls, &lm)
}

// pack6 puts eight scales and minima of 6 bits into twelve bytes.
func pack6(scales, mins *[8]byte) (out [12]byte) {
	for j := range 8 {
		ls, lm := scales[j], mins[j]
		if j < 4 {
			out[j], out[j+4] = ls, lm
			continue
		}
		out[j+4] = ls&15 | lm&15<<4
		out[j-4] |= ls >> 4 << 6
		out[j] |= lm >> 4 << 6
	}
	return out
}

// search says which scales are tried: those that spread the range of the values over top + first + 0.1·step levels.
type search struct {
	top, first float32
	steps      int
}

// scaleMin finds scale and minimum ≥ 0 so that x ≈ scale·level - minimum with levels 0..top, solving each trial for the least
// squares, weighted by magnitude (ggml's make_qkx2_quants).
func (sr search) scaleMin(x *[32]float32) (scale, minimum float32) {
	var weights, levels [32]float32
	f := weigh(x, &weights)
	lo := min(f.lo, 0)
	span := f.hi - lo
	if !(span > 0 && span <= math.MaxFloat32) {
		return 0, -lo
	}
	inv := sr.top / span
	scale, offset := 1/inv, lo
	f.fit(x, &weights, &levels, inv, lo, sr.top)
	best := weightedError(x, &weights, &levels, scale, offset)
	for step := range sr.steps {
		inv := (sr.first + float32(0.1)*float32(step) + sr.top) / (f.hi - offset) // the range follows the best minimum so far
		f.fit(x, &weights, &levels, inv, offset, sr.top)
		det := f.w*f.ll - f.l*f.l
		if det <= 0 {
			continue
		}
		s, m := (f.w*f.xl-f.x*f.l)/det, (f.ll*f.x-f.l*f.xl)/det
		if m > 0 {
			s, m = f.xl/f.ll, 0
		}
		if f.surelyWorse(s, m, best) {
			continue
		}
		if e := weightedError(x, &weights, &levels, s, m); e < best {
			best, scale, offset = e, s, m
		}
	}
	return scale, -offset
}

// fitting holds the range of 32 values and the weighted sums of a least-squares fit: of 1, x, x², and for the levels of one
// trial of l, l², x·l.
type fitting struct {
	lo, hi    float32
	w, x, xx  float32
	l, ll, xl float32
}

// weigh fills the weights, root mean square + |x|, and the sums that do not depend on a trial.
func weigh(x, weights *[32]float32) (f fitting) {
	var squares float32
	for _, v := range x {
		squares += v * v
	}
	rms := float32(math.Sqrt(float64(squares / 32)))
	f.lo, f.hi = x[0], x[0]
	for i, v := range x {
		w := rms + float32(math.Abs(float64(v)))
		weights[i] = w
		f.lo, f.hi = min(f.lo, v), max(f.hi, v)
		f.w += w
		f.x += w * v
		f.xx += w * v * v
	}
	return f
}

// fit computes the levels of a trial and their sums.
func (f *fitting) fit(x, weights, levels *[32]float32, inv, offset, top float32) {
	var sumL, sumLL, sumXL float32
	for i, v := range x {
		l := roundLevel(inv * (v - offset))
		if l < 0 {
			l = 0
		}
		if l > top {
			l = top
		}
		levels[i] = l
		wl := weights[i] * l
		sumL += wl
		sumLL += wl * l
		sumXL += wl * v
	}
	f.l, f.ll, f.xl = sumL, sumLL, sumXL
}

// surelyWorse estimates the error of a trial from its sums and reports whether it lies above best by more than their rounding
// can explain; the exact error, which costs as much as the fit, is then not needed.
func (f *fitting) surelyWorse(scale, offset, best float32) bool {
	s, m := float64(scale), float64(offset)
	a, b, c := s*s*float64(f.ll), m*m*float64(f.w), float64(f.xx)
	e := a + b + c + 2*(s*m*float64(f.l)-s*float64(f.xl)-m*float64(f.x))
	return e > 1.01*float64(best)+1e-5*(a+b+c)
}

// roundLevel rounds to the nearest whole number, ties to even, for |x| < 2^22: adding 1.5·2^23 leaves no bits behind the
// point.
func roundLevel(x float32) float32 {
	const magic = 12582912
	return float32(x+magic) - magic
}

// clampLevel rounds to the nearest level, 0..top.
func clampLevel(x, top float32) float32 { return max(0, min(top, roundLevel(x))) }

func weightedError(x, weights, levels *[32]float32, scale, offset float32) (sum float32) {
	for i, v := range x {
		diff := float32(scale*levels[i]) + offset - v
		sum += weights[i] * (diff * diff)
	}
	return sum
}

// quantizeQ6K quantises super-blocks of 256 to Q6_K: a signed scale for each 16 values, the sixteen of them quantised to 8
// bits (ggml's quantize_row_q6_K_ref).
func quantizeQ6K(dst []byte, src []float32) { quantizeQ6KWeighted(dst, src, nil) }

// quantizeQ6KWeighted weighs errors by importance, nil = by x² (ggml's quantize_row_q6_K_impl).
func quantizeQ6KWeighted(dst []byte, src, importance []float32) {
	for ; len(src) > 0; dst, src = dst[210:], src[superBlock:] {
		var scales [16]float32
		var top float32
		for j := range scales {
			if importance == nil {
				scales[j] = searchScale((*[16]float32)(src[j*16:]), 32)
			} else {
				scales[j] = fitSigned(src[j*16:j*16+16], importance[j*16:], nil, 32)
			}
			if math.Abs(float64(scales[j])) > math.Abs(float64(top)) {
				top = scales[j]
			}
		}
		if importance != nil {
			importance = importance[superBlock:]
		}
		clear(dst[:210])
		putHalf(dst[208:], finiteOr(0, src[:superBlock]))
		if !(math.Abs(float64(top)) >= groupMaxEps) {
			continue
		}
		inv := -128 / top
		putHalf(dst[208:], finiteOr(1/inv, src[:superBlock]))
		d := half(dst[208:])
		var levels [superBlock]byte
		for j := range scales {
			q := min(127, nearest(inv*scales[j]))
			dst[192+j] = byte(int8(q))
			levels6(levels[j*16:j*16+16], src[j*16:], d*float32(q))
		}
		packLevels6(dst, &levels)
	}
}

// levels6 writes sixteen levels 0..63 (32 = zero).
func levels6(levels []byte, x []float32, d float32) {
	for i := range levels {
		levels[i] = 32 // of a sub-block without a scale any level means zero; ggml leaves that of the search
		if d != 0 {
			levels[i] = byte(max(-32, min(31, nearest(x[i]/d))) + 32)
		}
	}
}

// packLevels6 puts 256 levels into the low nibbles and high bit pairs of a Q6_K block.
func packLevels6(dst []byte, levels *[superBlock]byte) {
	for n := range 2 {
		ql, qh, l := dst[n*64:], dst[128+n*32:], levels[n*128:]
		for i := range 32 {
			a, b, c, d := l[i], l[i+32], l[i+64], l[i+96]
			ql[i] = a&15 | c&15<<4
			ql[i+32] = b&15 | d&15<<4
			qh[i] = a>>4 | b>>4<<2 | c>>4<<4 | d>>4<<6
		}
	}
}

// searchScale finds the scale for x ≈ scale·level, levels -top..top-1, by trying 19 scales around the one that maps the
// value of largest magnitude to -top, with errors weighted by x² (ggml's make_qx_quants with rmse_type 1).
func searchScale(x *[16]float32, top int) float32 {
	var amax, peak float32
	for _, v := range x {
		if a := float32(math.Abs(float64(v))); a > amax {
			amax, peak = a, v
		}
	}
	if !(amax >= groupMaxEps && amax <= math.MaxFloat32) {
		return 0
	}
	fit := func(inv float32) (sumLX, sumL2 float32) {
		for _, v := range x {
			l := float32(max(-top, min(top-1, nearest(inv*v))))
			w := v * v
			sumLX += w * v * l
			sumL2 += w * l * l
		}
		return sumLX, sumL2
	}
	sumLX, sumL2 := fit(-float32(top) / peak)
	if sumL2 == 0 {
		return 0
	}
	scale := sumLX / sumL2
	best := scale * sumLX
	for step := -9; step <= 9; step++ {
		if step == 0 {
			continue
		}
		sumLX, sumL2 := fit(-(float32(top) + 0.1*float32(step)) / peak)
		if sumL2 > 0 && sumLX*sumLX > best*sumL2 {
			scale = sumLX / sumL2
			best = scale * sumLX
		}
	}
	return scale
}
