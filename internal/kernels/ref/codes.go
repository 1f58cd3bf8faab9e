package ref

// DotCodes writes the integer products of rows of dim numbers with contiguous tiles of codes of 8 or 4 bits (format:
// kvpage's code tiles), row r at dst[r*stride:]; dim fills whole groups.
func DotCodes(bits int, dst []int32, stride int, q []int8, codes []byte, rows, dim int) {
	size := dim * bits / 8 * tile
	n := len(codes) / size
	for r := range rows {
		for t := range n {
			for j := range tile {
				var sum int32
				for d := range dim {
					sum += int32(q[r*dim+d]) * code(bits, codes[t*size:], j, d)
				}
				dst[r*stride+t*tile+j] = sum
			}
		}
	}
}

func code(bits int, codes []byte, slot, d int) int32 {
	if bits == 8 {
		return int32(int8(codes[(d/4*tile+slot)*4+d%4]))
	}
	return int32(codes[(d/8*tile+slot)*4+d%4]>>(d%8/4*4)&15) - 8
}

// ScoreCodes is DotCodes in float32, row r times unit[r], token t times scales[t]; nil is all ones.
func ScoreCodes(bits int, dst []float32, stride int, q []int8, codes []byte, rows, dim int, unit, scales []float32) {
	size := dim * bits / 8 * tile
	var sums [tile]int32
	for r := range rows {
		for t := range len(codes) / size {
			DotCodes(bits, sums[:], tile, q[r*dim:(r+1)*dim], codes[t*size:(t+1)*size], 1, dim)
			for j, sum := range sums {
				i := t*tile + j
				x := float32(sum) * unit[r]
				if scales != nil {
					x *= scales[i]
				}
				dst[r*stride+i] = x
			}
		}
	}
}
