package kernels

// panelGo adds to out [n, 16] the products of x [n, k] (rows xStride apart) with a panel [k, 16]: the float
// micro-kernel in plain Go. Blocks of 4 weight rows by 2 activation rows keep their 8 sums in registers; a pair and a
// single row do the same arithmetic in the same order.
func panelGo(out, x []float32, xStride int, panel []float32, n, k int) {
	for r := 0; r < n; r += 2 {
		x0 := x[r*xStride : r*xStride+k]
		if r+1 == n {
			for w := 0; w < tileRows; w += 4 {
				panelGo1(out[r*tileRows+w:][:4], x0, panel[w:])
			}
			return
		}
		x1 := x[(r+1)*xStride : (r+1)*xStride+k]
		for w := 0; w < tileRows; w += 4 {
			panelGo2(out[r*tileRows+w:][:4], out[(r+1)*tileRows+w:][:4], x0, x1, panel[w:])
		}
	}
}

func panelGo1(out, x, panel []float32) {
	var a0, a1, a2, a3 float32
	for i, v := range x {
		w := panel[i*tileRows:][:4]
		a0 += v * w[0]
		a1 += v * w[1]
		a2 += v * w[2]
		a3 += v * w[3]
	}
	out[0], out[1], out[2], out[3] = out[0]+a0, out[1]+a1, out[2]+a2, out[3]+a3
}

func panelGo2(out0, out1, x0, x1, panel []float32) {
	var a0, a1, a2, a3, b0, b1, b2, b3 float32
	x1 = x1[:len(x0)]
	for i, v := range x0 {
		w, u := panel[i*tileRows:][:4], x1[i]
		a0 += v * w[0]
		a1 += v * w[1]
		a2 += v * w[2]
		a3 += v * w[3]
		b0 += u * w[0]
		b1 += u * w[1]
		b2 += u * w[2]
		b3 += u * w[3]
	}
	out0[0], out0[1], out0[2], out0[3] = out0[0]+a0, out0[1]+a1, out0[2]+a2, out0[3]+a3
	out1[0], out1[1], out1[2], out1[3] = out1[0]+b0, out1[1]+b1, out1[2]+b2, out1[3]+b3
}
