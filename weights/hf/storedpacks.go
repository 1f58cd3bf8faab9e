package hf

import (
	"encoding/binary"
	"fmt"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

// gptq presents stem's qweight [cols·bits/32, rows], qzeros [groups, rows·bits/32], scales [groups, rows] and g_idx [cols].
func (v *view) gptq(stem string) *gguf.Tensor {
	s := v.storage
	per := 32 / s.bits
	words, shape := v.part(stem+"qweight", "I32", -1, -1)
	if words == nil {
		return nil
	}
	m := &integers{name: stem + "weight", rows: shape[1], cols: shape[0] * per, bits: s.bits}
	if !v.groupsOf(m, stem) {
		return nil
	}
	zeros, _ := v.part(stem+"qzeros", "I32", m.groups, (m.rows+per-1)/per)
	scales := v.floatPart(stem+"scales", []int{m.groups, m.rows})
	if zeros == nil || scales == nil {
		return nil
	}
	m.band = func(dst []byte, first, n int) {
		data := words()
		for k := range m.cols / per {
			for i := range n {
				word := binary.LittleEndian.Uint32(data[4*(k*m.rows+first+i):])
				for j := range per {
					dst[i*m.cols+k*per+j] = byte(word >> (j * s.bits) & (1<<s.bits - 1))
				}
			}
		}
	}
	wide := (m.rows + per - 1) / per * 4
	m.zeros = func(dst []int, row int) {
		data := zeros()
		for g := range dst {
			if dst[g] = int(codeAt(data[g*wide:], row, s.bits)); s.plusOne {
				dst[g]++
			}
		}
	}
	t := &scaleTable{t: scales, down: m.rows, over: 1}
	return v.ordered(m, stem, t)
}

// ordered presents the matrix with the groups that g_idx says, where the checkpoint has it.
func (v *view) ordered(m *integers, stem string, t *scaleTable) *gguf.Tensor {
	if v.files.origin[stem+"g_idx"] == "" {
		return m.loading(m.blocks(v.storage.symmetric), t)
	}
	index, _ := v.part(stem+"g_idx", "I32", m.cols)
	if index == nil {
		return nil
	}
	read := func() []int32 {
		data, out := index(), make([]int32, m.cols)
		for c := range out {
			out[c] = int32(binary.LittleEndian.Uint32(data[4*c:]))
		}
		return out
	}
	if v.storage.free {
		m.group = []int32{}
	}
	kind := m.blocks(v.storage.symmetric)
	return gguf.NewTensor(m.name, kind, []int{m.rows, m.cols}, func() ([]byte, error) {
		own := *m
		own.group = read()
		if kind != quant.F16 {
			for c, g := range own.group {
				if int(g) != c/m.groupCols() {
					return nil, fmt.Errorf("%q puts column %d into group %d, but desc_act is false: %w", stem+"g_idx", c, g, gguf.ErrFormat)
				}
			}
			own.group = nil
		}
		return own.loading(kind, t).Bytes()
	})
}

// groupsOf sets how many groups a row has by the configuration; a fault where they do not divide it.
func (v *view) groupsOf(m *integers, stem string) bool {
	size := v.storage.group
	if size < 0 {
		size = m.cols
	}
	if m.cols%size != 0 {
		v.faults.add("%s: group_size %d does not divide the %d columns of %q: %w", v.cfg.where, size, m.cols, stem+"qweight", ErrConfig)
		return false
	}
	m.groups = m.cols / size
	return true
}

// awqOrder has, for the row of eight that share a word, its place in it.
var awqOrder = [8]int{0, 4, 1, 5, 2, 6, 3, 7}

// awq presents stem's qweight [cols, rows/8], qzeros [groups, rows/8] and scales [groups, rows], of words whose nibbles are rows 0, 2, 4,
// 6, 1, 3, 5, 7.
func (v *view) awq(stem string) *gguf.Tensor {
	words, shape := v.part(stem+"qweight", "I32", -1, -1)
	if words == nil {
		return nil
	}
	m := &integers{name: stem + "weight", rows: shape[1] * 8, cols: shape[0], bits: 4}
	if !v.groupsOf(m, stem) {
		return nil
	}
	zeros, _ := v.part(stem+"qzeros", "I32", m.groups, m.rows/8)
	scales := v.floatPart(stem+"scales", []int{m.groups, m.rows})
	if zeros == nil || scales == nil {
		return nil
	}
	nibble := func(data []byte, line, row int) byte {
		return byte(binary.LittleEndian.Uint32(data[4*(line*(m.rows/8)+row/8):]) >> (4 * awqOrder[row%8]) & 15)
	}
	m.band = func(dst []byte, first, n int) {
		data := words()
		for c := range m.cols {
			for i := range n {
				dst[i*m.cols+c] = nibble(data, c, first+i)
			}
		}
	}
	m.zeros = func(dst []int, row int) {
		data := zeros()
		for g := range dst {
			dst[g] = int(nibble(data, g, row))
		}
	}
	return m.loading(m.blocks(false), &scaleTable{t: scales, down: m.rows, over: 1})
}
