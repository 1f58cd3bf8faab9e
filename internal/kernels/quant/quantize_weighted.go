package quant

// Quantisers under an importance matrix: one row, one weight a column.

// small are the types of blocks of 32 without quantised scales: a search over all values of a block.
type small struct {
	bytes, top int
	ranged     bool // scale and minimum instead of a signed scale
	fifth      bool // levels of 5 bits
}

var (
	signed4 = small{bytes: 18, top: 8}
	signed5 = small{bytes: 22, top: 16, fifth: true}
	ranged4 = small{bytes: 20, top: 15, ranged: true}
	ranged5 = small{bytes: 24, top: 31, ranged: true, fifth: true}
)

// quantize is ggml's quantize_row_q4_0_impl, q4_1, q5_0 and q5_1.
func (s small) quantize(dst []byte, row, importance []float32) {
	spread := meanSquare(row)
	for ; len(row) > 0; dst, row, importance = dst[s.bytes:], row[32:], importance[32:] {
		var w [32]float32
		var levels [32]byte
		weigh2(w[:], row[:32], importance, spread)
		rest := dst[2:s.bytes]
		if s.ranged {
			d, m := fitRange(row[:32], w[:], levels[:], float32(s.top))
			putHalf(dst, finiteOr(d, row[:32]))
			putHalf(dst[2:], -m)
			rest = dst[4:s.bytes]
		} else {
			d := fitSigned(row[:32], w[:], levels[:], s.top)
			putHalf(dst, finiteOr(d, row[:32]))
		}
		if s.fifth {
			var exact [32]float32
			for i, l := range levels {
				exact[i] = float32(l)
			}
			putLevels5(rest, exact[:], func(l float32) byte { return byte(l) })
			continue
		}
		for j := range 16 {
			rest[j] = levels[j] | levels[j+16]<<4
		}
	}
}

// quantizeQ4KWeighted is ggml's quantize_row_q4_K_impl.
func quantizeQ4KWeighted(dst []byte, row, importance []float32) {
	for ; len(row) > 0; dst, row, importance = dst[144:], row[superBlock:], importance[superBlock:] {
		var levels [superBlock]byte
		search4.weighted(dst, row[:superBlock], importance, &levels)
		packLevels4(dst, &levels)
	}
}

// quantizeQ5KWeighted is ggml's quantize_row_q5_K_impl.
func quantizeQ5KWeighted(dst []byte, row, importance []float32) {
	for ; len(row) > 0; dst, row, importance = dst[176:], row[superBlock:], importance[superBlock:] {
		var levels [superBlock]byte
		search5.weighted(dst, row[:superBlock], importance, &levels)
		packLevels5(dst, &levels)
	}
}

// weighted is superBlock with weights for values, and for the scales and minima that it quantises.
func (s search) weighted(dst []byte, src, importance []float32, levels *[superBlock]byte) {
	var scales, mins, sums [8]float32
	spread := 2 * meanSquare(src)
	for j := range 8 {
		var w [32]float32
		sums[j] = weigh2(w[:], src[j*32:j*32+32], importance[j*32:], spread)
		scales[j], mins[j] = fitRange(src[j*32:j*32+32], w[:], levels[j*32:j*32+32], s.top)
	}
	var ls, lm [8]byte
	putHalf(dst, finiteOr(fitPositive(scales[:], sums[:], ls[:], 63), src))
	putHalf(dst[2:], fitPositive(mins[:], sums[:], lm[:], 63))
	packed := pack6(&ls, &lm)
	copy(dst[4:16], packed[:])
	s.levels(dst, src, levels)
}

// quantizeQ3K quantises super-blocks of 256 to Q3_K: a signed scale for each 16 values, quantised to 6 bits (ggml's
// quantize_row_q3_K_ref).
func quantizeQ3K(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[110:], src[superBlock:] {
		var scales [16]float32
		for j := range scales {
			scales[j] = fit3(src[j*16 : j*16+16])
		}
		_, top := peakOf(scales[:])
		var d float32
		levels := [16]byte{}
		if top != 0 {
			inv := -32 / top
			for j, s := range scales {
				levels[j] = byte(max(-32, min(31, nearest(inv*s))) + 32)
			}
			d = 1 / inv
		}
		put3K(dst, src[:superBlock], d, &levels)
	}
}

// quantizeQ3KWeighted is ggml's quantize_row_q3_K_impl.
func quantizeQ3KWeighted(dst []byte, row, importance []float32) {
	for ; len(row) > 0; dst, row, importance = dst[110:], row[superBlock:], importance[superBlock:] {
		var scales, sums [16]float32
		spread := 2 * meanSquare(row[:superBlock])
		for j := range scales {
			var w [16]float32
			sums[j] = weigh2(w[:], row[j*16:j*16+16], importance[j*16:], spread)
			scales[j] = fitSigned(row[j*16:j*16+16], w[:], nil, 4)
		}
		var levels [16]byte
		d := fitSigned(scales[:], sums[:], levels[:], 32)
		put3K(dst, row[:superBlock], d, &levels)
	}
}

// fit3 finds the scale of 16 values for levels -4..3, weighted by x² (make_q3_quants with rmse).
func fit3(x []float32) float32 {
	amax, peak := peakOf(x)
	if !scalable(amax) {
		return 0
	}
	f := levelFit{x: x, w: make([]float32, len(x)), levels: make([]int, len(x)), low: -4, high: 3}
	for i, v := range x {
		f.w[i] = v * v
		f.levels[i] = max(-4, min(3, nearest(-4/peak*v)))
	}
	return f.improve(false)
}

// put3K writes a Q3_K block: d, sixteen scales of 6 bits (0..63, 32 = zero), and the levels of the values under them.
func put3K(dst []byte, x []float32, d float32, scales *[16]byte) {
	clear(dst[:110])
	putHalf(dst[108:], finiteOr(d, x))
	d = half(dst[108:])
	for j, s := range scales {
		dst[96+j%8] |= s & 15 << (j / 8 * 4)
		dst[104+j%4] |= s >> 4 << (j / 4 * 2)
	}
	for i, v := range x {
		level := 4 // of a sub-block without a scale any level means zero
		if scale := d * float32(int(scales[i/16])-32); scale != 0 {
			level = max(-4, min(3, nearest(v/scale))) + 4
		}
		dst[i%32] |= byte(level>>2) << (i / 32)
		dst[32+i/128*32+i%32] |= byte(level&3) << (i % 128 / 32 * 2)
	}
}

// quantizeIQ4NL is ggml's quantize_iq4_nl: blocks of 32, levels from a table.
func quantizeIQ4NL(dst []byte, src []float32) { quantizeIQ4NLWeighted(dst, src, nil) }

// quantizeIQ4NLWeighted weighs errors by importance, nil = by x².
func quantizeIQ4NLWeighted(dst []byte, row, importance []float32) {
	for i := 0; len(row) > 0; i, dst, row = i+1, dst[18:], row[32:] {
		d := fitTable(row[:32], weightsOfTable(row[:32], importance, i*32, 2*meanSquare(row[:32])))
		putHalf(dst, finiteOr(d, row[:32]))
		putTable(dst[2:18], row[:32], inverse(d))
	}
}

// quantizeIQ4XS is ggml's quantize_iq4_xs: super-blocks of 256 whose eight scales have 6 bits.
func quantizeIQ4XS(dst []byte, src []float32) { quantizeIQ4XSWeighted(dst, src, nil) }

// quantizeIQ4XSWeighted weighs errors by importance, nil = by x².
func quantizeIQ4XSWeighted(dst []byte, row, importance []float32) {
	for i := 0; len(row) > 0; i, dst, row = i+1, dst[136:], row[superBlock:] {
		var scales [8]float32
		spread := 2 * meanSquare(row[:superBlock])
		for j := range scales {
			x := row[j*32 : j*32+32]
			scales[j] = fitTable(x, weightsOfTable(x, importance, i*superBlock+j*32, spread))
		}
		_, top := peakOf(scales[:])
		d := -top / 32
		clear(dst[:136])
		putHalf(dst, finiteOr(d, row[:superBlock]))
		inv := inverse(d)
		for j, s := range scales {
			l := max(-32, min(31, nearest(inv*s)))
			putTable(dst[8+j*16:8+j*16+16], row[j*32:j*32+32], inverse(d*float32(l)))
			dst[4+j/2] |= byte(l+32) & 15 << (j % 2 * 4)
			dst[2+j/4] |= byte(l+32) >> 4 << (j % 4 * 2)
		}
	}
}

// weightsOfTable are the weights of 32 values from column on.
func weightsOfTable(x, importance []float32, column int, spread float32) *[32]float32 {
	var w [32]float32
	if importance != nil {
		weigh2(w[:], x, importance[column:], spread)
		return &w
	}
	for i, v := range x {
		w[i] = v * v
	}
	return &w
}

// fitTable finds the scale for x ≈ scale·iq4Values[level] by trying 16 (quantize_row_iq4_nl_impl with ntry 7).
func fitTable(x []float32, w *[32]float32) float32 {
	amax, peak := peakOf(x)
	if !scalable(amax) {
		return 0
	}
	fit := func(inv float32) (sumQX, sumQ2 float32) {
		for i, v := range x {
			q := iq4Values[nearestInTable(inv*v)]
			sumQX += w[i] * q * v
			sumQ2 += w[i] * q * q
		}
		return sumQX, sumQ2
	}
	var scale float32
	sumQX, sumQ2 := fit(1 / (-peak / iq4Values[0]))
	if sumQ2 > 0 {
		scale = sumQX / sumQ2
	}
	best := scale * sumQX
	for step := -7; step <= 7; step++ {
		if sumQX, sumQ2 := fit((float32(step) + iq4Values[0]) / peak); sumQ2 > 0 && sumQX*sumQX > best*sumQ2 {
			scale = sumQX / sumQ2
			best = scale * sumQX
		}
	}
	return scale
}

// putTable writes the nibbles of 32 values times inv.
func putTable(dst []byte, x []float32, inv float32) {
	for j := range 16 {
		dst[j] = nearestInTable(inv*x[j]) | nearestInTable(inv*x[j+16])<<4
	}
}

// nearestInTable is the level whose value is nearest to x, of two equally near the upper (best_index_int8).
func nearestInTable(x float32) byte {
	if !(x > iq4Values[0]) { // NaN too
		return 0
	}
	if x >= iq4Values[len(iq4Values)-1] {
		return byte(len(iq4Values) - 1)
	}
	low := iq4Below[int(x-iq4Values[0])]
	if x-iq4Values[low] < iq4Values[low+1]-x {
		return low
	}
	return low + 1
}

// iq4Below is the highest level whose value is at most -127 + i. The values are whole numbers, so that it holds for all x between two.
var iq4Below = func() (below [241]byte) {
	for i := range below {
		for l, v := range iq4Values[:len(iq4Values)-1] {
			if v <= iq4Values[0]+float32(i) {
				below[i] = byte(l)
			}
		}
	}
	return below
}()
