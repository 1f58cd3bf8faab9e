package hf

import (
	"encoding/binary"
	"fmt"
	"math"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

// integers is a matrix [rows, cols] of unsigned integers of a few bits: value = (code - zero) · scale, both of the column's group.
type integers struct {
	name       string
	rows, cols int
	bits       int
	groups     int
	group      []int32 // of each column; nil: columns lie in equal groups
	// band writes the codes of n rows from row first on, [n, cols].
	band func(dst []byte, first, n int)
	// scales and zeros write those of a row, one a group; zeros nil: the middle of the range.
	scales func(dst []float32, row int)
	zeros  func(dst []int, row int)
}

// bandRows are unpacked together: rows that lie side by side in files that store columns.
const bandRows = 64

func (m *integers) groupCols() int { return (m.cols + m.groups - 1) / m.groups }

// blocks is the type that holds the values exactly, but for a scale that is no float16: Q4_0 or Q8_0 around the middle, Q5_0 for 4 bits with any
// zero point (code - zero is -16 to 15). F16, which rounds to 11 bits, where groups do not fit blocks of 32 or zero points need 9 bits.
func (m *integers) blocks(symmetric bool) quant.Type {
	switch {
	case m.group != nil || m.cols%32 != 0 || m.groups > 1 && m.groupCols()%32 != 0:
		return quant.F16
	case m.bits == 8 && !symmetric:
		return quant.F16
	case m.bits == 8:
		return quant.Q8_0
	case m.bits == 4 && !symmetric:
		return quant.Q5_0
	}
	return quant.Q4_0
}

func (m *integers) encode(kind quant.Type) ([]byte, error) {
	rowBytes := kind.RowBytes(m.cols)
	out, codes := make([]byte, m.rows*rowBytes), make([]byte, min(bandRows, m.rows)*m.cols)
	scales, zeros, row := make([]float32, m.groups), make([]int, m.groups), make([]int, m.cols)
	for first := 0; first < m.rows; first += bandRows {
		n := min(bandRows, m.rows-first)
		m.band(codes, first, n)
		for i := range n {
			r := first + i
			m.scales(scales, r)
			for g := range zeros {
				zeros[g] = 1 << (m.bits - 1)
			}
			if m.zeros != nil {
				m.zeros(zeros, r)
			}
			if err := m.levels(row, codes[i*m.cols:(i+1)*m.cols], zeros); err != nil {
				return nil, err
			}
			if err := m.encodeRow(out[r*rowBytes:(r+1)*rowBytes], kind, row, scales); err != nil {
				return nil, fmt.Errorf("row %d: %w", r, err)
			}
		}
	}
	return out, nil
}

func (m *integers) groupOf(c int) int {
	if m.group != nil {
		return int(m.group[c])
	}
	return c / m.groupCols()
}

// levels are the codes less their zero points.
func (m *integers) levels(dst []int, codes []byte, zeros []int) error {
	for c, code := range codes {
		g := m.groupOf(c)
		if g < 0 || g >= m.groups {
			return fmt.Errorf("column %d has group %d, want 0 to %d: %w", c, g, m.groups-1, gguf.ErrFormat)
		}
		dst[c] = int(code) - zeros[g]
	}
	return nil
}

// encodeRow writes a row of levels.
func (m *integers) encodeRow(dst []byte, kind quant.Type, row []int, scales []float32) error {
	if kind == quant.F16 {
		x := make([]float32, len(row))
		for c, l := range row {
			x[c] = float32(l) * scales[m.groupOf(c)]
		}
		return quant.Quantize(kind, dst, x)
	}
	size := kind.BlockBytes()
	for c := 0; c < len(row); c += 32 {
		b := dst[c/32*size : (c/32+1)*size]
		if err := quant.Quantize(quant.F16, b[:2], scales[m.groupOf(c):][:1]); err != nil {
			return err
		}
		if err := putLevels(b[2:], kind, row[c:c+32]); err != nil {
			return err
		}
	}
	return nil
}

// putLevels writes the 32 levels of a block behind its scale.
func putLevels(b []byte, kind quant.Type, levels []int) error {
	least, most := -8, 7
	switch kind {
	case quant.Q5_0:
		least, most = -16, 15
	case quant.Q8_0:
		least, most = -128, 127
	}
	var high uint32
	for j, l := range levels {
		if l < least || l > most {
			return fmt.Errorf("zero points make %d of a level, want %d to %d, as sym says: %w", l, least, most, gguf.ErrFormat)
		}
		switch kind {
		case quant.Q8_0:
			b[j] = byte(int8(l))
			continue
		case quant.Q5_0:
			high |= uint32(l+16) >> 4 << j
			b[4+j%16] |= byte(l+16) & 15 << (j / 16 * 4)
		default:
			b[j%16] |= byte(l+8) << (j / 16 * 4)
		}
	}
	if kind == quant.Q5_0 {
		binary.LittleEndian.PutUint32(b, high)
	}
	return nil
}

// codeAt is code i of a run of 32-bit words that hold codes of so many bits, the first in the lowest.
func codeAt(words []byte, i, bits int) byte {
	per := 32 / bits
	return byte(binary.LittleEndian.Uint32(words[i/per*4:]) >> (i % per * bits) & (1<<bits - 1))
}

// scaleTable is where the scales lie: of a row and group at down·group + over·row.
type scaleTable struct {
	t          *gguf.Tensor
	down, over int
	x          []float32
}

// at writes the scales of a row, once x is read.
func (s *scaleTable) at(dst []float32, row int) {
	for g := range dst {
		dst[g] = s.x[g*s.down+row*s.over]
	}
}

// loading presents the matrix in blocks of a type. Its scales are read with it and go with the call.
func (m *integers) loading(kind quant.Type, s *scaleTable) *gguf.Tensor {
	return gguf.NewTensor(m.name, kind, []int{m.rows, m.cols}, func() ([]byte, error) {
		x, err := floatsOf(s.t)
		if err != nil {
			return nil, err
		}
		for i, v := range x {
			if v := math.Abs(float64(v)); v > 65504 {
				return nil, fmt.Errorf("scale %d of %q is %g, beyond float16: %w", i, s.t.Name, v, gguf.ErrFormat)
			}
		}
		local := *s
		local.x = x
		own := *m
		own.scales = local.at
		return own.encode(kind)
	})
}
