package hf

import (
	"encoding/binary"
	"maps"
	"slices"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

// compressedStorage reads the configuration of compressed-tensors. Which module has which form its tensors say; the groups are read for
// what would make their numbers mean something else.
func compressedStorage(q fields) (s storage) {
	q.only("quant_method", "format", "config_groups", "ignore", "kv_cache_scheme", "quantization_status", "global_compression_ratio", "sparsity_config",
		"transform_config", "version", "targets")
	formats := []string{"pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized", "mixed-precision"}
	q.want("format", "pack-quantized", formats...)
	q.want("quantization_status", "compressed", "compressed", "frozen", "initialized")
	if sparse, ok := q.object("sparsity_config"); ok && len(sparse.values) > 0 {
		sparse.want("format", "dense", "dense")
	}
	if t, ok := q.object("transform_config"); ok && len(t.values) > 0 {
		groups, _ := t.object("config_groups")
		if len(groups.values) > 0 {
			q.faults.add("%s: transform_config: rotated weights: %w", q.where, ErrQuantized)
		}
	}
	groups, ok := q.object("config_groups")
	if !ok {
		q.wrong("config_groups", "an object")
	}
	for _, name := range slices.Sorted(maps.Keys(groups.values)) {
		g, ok := groups.object(name)
		if !ok {
			groups.wrong(name, "an object")
			continue
		}
		g.only("targets", "weights", "input_activations", "output_activations", "format")
		g.want("format", formats[0], formats...)
		if w, ok := g.object("weights"); ok {
			s.weights(w)
		}
	}
	return s
}

// weights reads one group's scheme.
func (s *storage) weights(w fields) {
	w.only("num_bits", "type", "symmetric", "strategy", "group_size", "dynamic", "actorder", "observer", "observer_kwargs", "block_structure",
		"scale_dtype", "zp_dtype")
	w.want("type", "int", "int", "float")
	w.want("strategy", "group", "tensor", "channel", "group", "block", "tensor_group")
	if bits := w.intOr("num_bits", 8, 1, 64); bits != 4 && bits != 8 {
		w.faults.add("%s: num_bits is %d, want 4 or 8: %w", w.where, bits, ErrQuantized)
	}
	if w.boolOr("dynamic", false) {
		w.faults.add("%s: dynamic is true: %w", w.where, ErrQuantized)
	}
	if block := w.blockOf("block_structure"); block[0] > 0 {
		s.block = block
	}
}

// packed presents stem's weight_packed: integers of 4 or 8 bits in I32, or NVFP4 in U8.
func (v *view) packed(stem string) *gguf.Tensor {
	if _, e, _ := v.files.entry(stem + "weight_packed"); e.DType == "U8" {
		return v.nvfp4(stem)
	}
	words, shape := v.part(stem+"weight_packed", "I32", -1, -1)
	sizes, _ := v.part(stem+"weight_shape", "I64", 2)
	if words == nil || sizes == nil {
		return nil
	}
	m := &integers{name: stem + "weight", rows: shape[0]}
	if data := sizes(); len(data) == 16 {
		rows, cols := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
		if rows == uint64(m.rows) && cols > 0 && cols <= maxWidth {
			m.cols = int(cols)
		}
	}
	for _, bits := range []int{4, 8} {
		if m.cols > 0 && (m.cols*bits+31)/32 == shape[1] {
			m.bits = bits
		}
	}
	if m.bits == 0 {
		v.faults.add("tensor %q: %v words do not hold what %q says, in 4 or 8 bits: %w", stem+"weight_packed", shape, stem+"weight_shape", ErrShape)
		return nil
	}
	m.band = func(dst []byte, first, n int) {
		data := words()
		for i := range n {
			line := data[4*(first+i)*shape[1]:]
			for c := range m.cols {
				dst[i*m.cols+c] = codeAt(line, c, m.bits)
			}
		}
	}
	t := v.rowScales(m, stem)
	if t == nil {
		return nil
	}
	symmetric := v.files.origin[stem+"weight_zero_point"] == ""
	if !symmetric {
		wide := (m.rows*m.bits + 31) / 32
		zeros, _ := v.part(stem+"weight_zero_point", "I32", wide, m.groups)
		if zeros == nil {
			return nil
		}
		per := 32 / m.bits
		m.zeros = func(dst []int, row int) {
			data := zeros()
			for g := range dst {
				word := binary.LittleEndian.Uint32(data[4*(row/per*m.groups+g):])
				dst[g] = int(word >> (row % per * m.bits) & (1<<m.bits - 1))
			}
		}
	}
	if v.files.origin[stem+"weight_g_idx"] != "" {
		return v.reordered(m, stem, t, symmetric)
	}
	return m.loading(m.blocks(symmetric), t)
}

// reordered is for columns of any group.
func (v *view) reordered(m *integers, stem string, t *scaleTable, symmetric bool) *gguf.Tensor {
	index, _ := v.part(stem+"weight_g_idx", "I32", m.cols)
	if index == nil {
		return nil
	}
	m.group = []int32{}
	kind := m.blocks(symmetric)
	return gguf.NewTensor(m.name, kind, []int{m.rows, m.cols}, func() ([]byte, error) {
		own, data := *m, index()
		own.group = make([]int32, m.cols)
		for c := range own.group {
			own.group[c] = int32(binary.LittleEndian.Uint32(data[4*c:]))
		}
		return own.loading(kind, t).Bytes()
	})
}

// rowScales finds weight_scale of stem: [rows, groups], or one of the whole. It sets the number of groups.
func (v *view) rowScales(m *integers, stem string) *scaleTable {
	name := stem + "weight_scale"
	_, e, ok := v.files.entry(name)
	if ok && len(e.Shape) == 2 && e.Shape[0] == m.rows && e.Shape[1] > 0 && m.cols%e.Shape[1] == 0 {
		m.groups = e.Shape[1]
		if t := v.floatPart(name, e.Shape); t != nil {
			return &scaleTable{t: t, down: 1, over: m.groups}
		}
		return nil
	}
	m.groups = 1
	if t := v.floatPart(name, []int{m.rows, 1}, []int{1}, []int{1, 1}); t != nil {
		return &scaleTable{t: t}
	}
	return nil
}

// int8s presents a matrix of I8 codes with scales of rows, groups or the whole.
func (v *view) int8s(name string) *gguf.Tensor {
	codes, shape := v.part(name, "I8", -1, -1)
	if codes == nil {
		return nil
	}
	stem := name[:len(name)-len("weight")]
	m := &integers{name: name, rows: shape[0], cols: shape[1], bits: 8}
	m.band = func(dst []byte, first, n int) {
		for i, c := range codes()[first*m.cols : (first+n)*m.cols] {
			dst[i] = c ^ 128
		}
	}
	t := v.rowScales(m, stem)
	if t == nil {
		return nil
	}
	if v.files.origin[stem+"weight_zero_point"] != "" {
		zeros, at := v.part(stem+"weight_zero_point", "I8", m.rows, m.groups)
		if zeros == nil {
			return nil
		}
		m.zeros = func(dst []int, row int) {
			for g := range dst {
				dst[g] = int(zeros()[row*at[1]+g] ^ 128)
			}
		}
	}
	return m.loading(m.blocks(m.zeros == nil), t)
}

// nvfp4 presents stem's weight_packed [rows, cols/2], number 2i in the low half of byte i, weight_scale (E4M3) of each 16 columns, and
// weight_global_scale, which the scales are divided by.
func (v *view) nvfp4(stem string) *gguf.Tensor {
	codes, shape := v.part(stem+"weight_packed", "U8", -1, -1)
	if codes == nil {
		return nil
	}
	rows, cols := shape[0], 2*shape[1]
	if cols%32 != 0 {
		v.faults.add("tensor %q: rows of %d numbers, NVFP4 is read in multiples of 32: %w", stem+"weight_packed", cols, ErrShape)
		return nil
	}
	scales, _ := v.part(stem+"weight_scale", "F8_E4M3", rows, cols/16)
	global := v.floatPart(stem+"weight_global_scale", []int{1})
	if scales == nil || global == nil {
		return nil
	}
	return gguf.NewTensor(stem+"weight", quant.NVFP4_F32, []int{rows, cols}, func() ([]byte, error) {
		all, err := floatsOf(global)
		if err != nil {
			return nil, err
		}
		c, s := codes(), scales()
		out := make([]byte, rows*quant.NVFP4_F32.RowBytes(cols))
		for i := range len(out) / 24 {
			b := out[24*i : 24*i+24]
			for h := range 2 {
				putFloat(b[4*h:], quant.E4M3(s[2*i+h])/all[0]/2) // of doubled values
				halveFP4(b[8+8*h:16+8*h], c[16*i+8*h:16*i+8*h+8])
			}
		}
		return out, nil
	})
}

// halveFP4 writes sixteen numbers stored in turn with the first eight in the low halves.
func halveFP4(dst, src []byte) {
	number := func(i int) byte { return src[i/2] >> (4 * (i % 2)) & 15 }
	for i := range dst {
		dst[i] = number(i) | number(i+8)<<4
	}
}
