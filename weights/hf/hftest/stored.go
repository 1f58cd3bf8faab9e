package hftest

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
)

// Stored is a checkpoint being written: tensors of any dtype, and what its quantised matrices stand for by the slow definition of their
// format.
type Stored struct {
	rng     *rand.Rand
	Tensors Raw
	Values  map[string][]float32
}

func newStored() *Stored {
	return &Stored{rng: rand.New(rand.NewPCG(1, 39)), Tensors: Raw{}, Values: map[string][]float32{}}
}

func (s *Stored) put(name, dtype string, shape []int, data []byte) {
	s.Tensors[name] = RawTensor{DType: dtype, Shape: shape, Data: data}
}

func words(w []uint32) (b []byte) {
	for _, v := range w {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func halves(t testing.TB, kind quant.Type, x []float32) []byte {
	b := make([]byte, kind.RowBytes(len(x)))
	if err := quant.Quantize(kind, b, x); err != nil {
		t.Fatal(err)
	}
	quant.Dequantize(kind, x, b) // what is stored is what is compared with
	return b
}

// scales are positive numbers that float16 and bfloat16 hold.
func (s *Stored) scales(n, bits int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(16+s.rng.IntN(112)) / float32(int(256)<<bits)
	}
	return x
}

func (s *Stored) codes(n, below int) []int {
	q := make([]int, n)
	for i := range q {
		q[i] = s.rng.IntN(below)
	}
	return q
}

// gptq packs a matrix [rows, cols] as GPTQ does: eight (of 4 bits) neighbouring columns a word, zero points less one.
func (s *Stored) gptq(t testing.TB, stem string, rows, cols, bits, group int, symmetric bool, order []int) {
	per, groups := 32/bits, cols/group
	q, zeros, scales := s.codes(rows*cols, 1<<bits), s.codes(groups*rows, 1<<bits), s.scales(groups*rows, bits)
	packed, zeroWords, index := make([]uint32, cols/per*rows), make([]uint32, groups*rows/per), make([]uint32, cols)
	scaleBytes, value := halves(t, quant.F16, scales), make([]float32, rows*cols)
	for r := range rows {
		for g := range groups {
			if symmetric {
				zeros[g*rows+r] = 1<<(bits-1) - 1
			}
			zeroWords[g*(rows/per)+r/per] |= uint32(zeros[g*rows+r]) << (r % per * bits)
		}
		for c := range cols {
			g := c / group
			if order != nil {
				g = order[c]
			}
			index[c] = uint32(g)
			packed[c/per*rows+r] |= uint32(q[r*cols+c]) << (c % per * bits)
			value[r*cols+c] = float32(q[r*cols+c]-zeros[g*rows+r]-1) * scales[g*rows+r]
		}
	}
	s.put(stem+"qweight", "I32", []int{cols / per, rows}, words(packed))
	s.put(stem+"qzeros", "I32", []int{groups, rows / per}, words(zeroWords))
	s.put(stem+"scales", "F16", []int{groups, rows}, scaleBytes)
	s.put(stem+"g_idx", "I32", []int{cols}, words(index))
	s.Values[stem+"weight"] = value
}

// awq packs as AutoAWQ's gemm: the nibbles of a word are outputs 0, 2, 4, 6, 1, 3, 5, 7 of eight.
func (s *Stored) awq(t testing.TB, stem string, rows, cols, group int) {
	groups := cols / group
	q, zeros, scales := s.codes(rows*cols, 16), s.codes(groups*rows, 16), s.scales(groups*rows, 4)
	scaleBytes, value := halves(t, quant.F16, scales), make([]float32, rows*cols)
	pack := func(lines int, at func(line, row int) int) []uint32 {
		out := make([]uint32, lines*rows/8)
		for line := range lines {
			for i := range rows / 8 {
				for nibble, row := range []int{0, 2, 4, 6, 1, 3, 5, 7} {
					out[line*(rows/8)+i] |= uint32(at(line, 8*i+row)) << (4 * nibble)
				}
			}
		}
		return out
	}
	for r := range rows {
		for c := range cols {
			g := c / group
			value[r*cols+c] = float32(q[r*cols+c]-zeros[g*rows+r]) * scales[g*rows+r]
		}
	}
	s.put(stem+"qweight", "I32", []int{cols, rows / 8}, words(pack(cols, func(c, r int) int { return q[r*cols+c] })))
	s.put(stem+"qzeros", "I32", []int{groups, rows / 8}, words(pack(groups, func(g, r int) int { return zeros[g*rows+r] })))
	s.put(stem+"scales", "F16", []int{groups, rows}, scaleBytes)
	s.Values[stem+"weight"] = value
}

// packed packs as compressed-tensors' pack-quantized: signed numbers plus half of the range, columns in rising order, zero points packed over rows.
func (s *Stored) packed(t testing.TB, stem string, rows, cols, bits, group int, symmetric bool, order []int) {
	per, groups, half := 32/bits, cols/group, 1<<(bits-1)
	q, zeros, scales := s.codes(rows*cols, 1<<bits), s.codes(groups*rows, 1<<bits), s.scales(groups*rows, bits)
	words4, zeroWords, index := make([]uint32, rows*cols/per), make([]uint32, rows/per*groups), make([]uint32, cols)
	scaleBytes, value := halves(t, quant.BF16, scales), make([]float32, rows*cols)
	for r := range rows {
		for g := range groups {
			if symmetric {
				zeros[r*groups+g] = half
			}
			zeroWords[r/per*groups+g] |= uint32(zeros[r*groups+g]) << (r % per * bits)
		}
		for c := range cols {
			g := c / group
			if order != nil {
				g = order[c]
			}
			index[c] = uint32(g)
			words4[(r*cols+c)/per] |= uint32(q[r*cols+c]) << (c % per * bits)
			value[r*cols+c] = float32((q[r*cols+c]-half)-(zeros[r*groups+g]-half)) * scales[r*groups+g]
		}
	}
	s.put(stem+"weight_packed", "I32", []int{rows, cols / per}, words(words4))
	s.put(stem+"weight_shape", "I64", []int{2}, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(rows)), uint64(cols)))
	s.put(stem+"weight_scale", "BF16", []int{rows, groups}, scaleBytes)
	if !symmetric {
		s.put(stem+"weight_zero_point", "I32", []int{rows / per, groups}, words(zeroWords))
	}
	if order != nil {
		s.put(stem+"weight_g_idx", "I32", []int{cols}, words(index))
	}
	s.Values[stem+"weight"] = value
}

// int8s writes numbers of 8 bits under a scale a row.
func (s *Stored) int8s(t testing.TB, stem string, rows, cols int) {
	scales, data, value := s.scales(rows, 8), make([]byte, rows*cols), make([]float32, rows*cols)
	scaleBytes := halves(t, quant.BF16, scales)
	for i := range data {
		q := int8(s.rng.IntN(256) - 128)
		data[i], value[i] = byte(q), float32(q)*scales[i/cols]
	}
	s.put(stem+"weight", "I8", []int{rows, cols}, data)
	s.put(stem+"weight_scale", "BF16", []int{rows, 1}, scaleBytes)
	s.Values[stem+"weight"] = value
}

// e4m3 is the value of an FP8 code by its definition.
func e4m3(code byte) float32 {
	exponent, mantissa := int(code>>3&15), float64(code&7)
	v := math.Ldexp(1+mantissa/8, exponent-7)
	if exponent == 0 {
		v = math.Ldexp(mantissa/8, -6)
	}
	if code > 127 {
		v = -v
	}
	return float32(v)
}

func (s *Stored) e4m3s(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		if b[i] = byte(s.rng.Uint32()); b[i]&127 == 127 {
			b[i]--
		}
	}
	return b
}

// fp8 writes codes under float32 scales of blocks; suffix is _scale_inv or _scale.
func (s *Stored) fp8(t testing.TB, name, suffix string, rows, cols, byRows, byCols int, shape ...int) {
	down, across := (rows+byRows-1)/byRows, (cols+byCols-1)/byCols
	codes, scales, value := s.e4m3s(rows*cols), make([]float32, down*across), make([]float32, rows*cols)
	for i := range scales {
		scales[i] = float32(0.0002 + 0.002*s.rng.Float64())
	}
	for i, c := range codes {
		value[i] = e4m3(c) * scales[i/cols/byRows*across+i%cols/byCols]
	}
	s.put(name, "F8_E4M3", []int{rows, cols}, codes)
	s.put(name+suffix, "F32", shape, halves(t, quant.F32, scales))
	s.Values[name] = value
}

// nvfp4 writes E2M1 numbers in turn, scales of 16 columns, and one that divides them.
func (s *Stored) nvfp4(stem string, rows, cols int) {
	fp4 := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6}
	codes, scales, value := make([]byte, rows*cols/2), make([]byte, rows*cols/16), make([]float32, rows*cols)
	for i := range scales {
		scales[i] = byte(0x20 + s.rng.IntN(0x40))
	}
	const global = 298.5
	for i := range value {
		code := s.rng.IntN(16)
		codes[i/2] |= byte(code) << (i % 2 * 4)
		value[i] = fp4[code] * (e4m3(scales[i/16]) / global)
	}
	s.put(stem+"weight_packed", "U8", []int{rows, cols / 2}, codes)
	s.put(stem+"weight_scale", "F8_E4M3", []int{rows, cols / 16}, scales)
	s.put(stem+"weight_global_scale", "F32", []int{1}, words([]uint32{math.Float32bits(global)}))
	s.Values[stem+"weight"] = value
}

// StoredConfig is a small llama whose matrices are wide enough for blocks.
var StoredConfig = Llama().With(Config{"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 1, "head_dim": 32, "vocab_size": 40})

// Form is a way of storing matrices: a quantization_config, the writer of a matrix, the type that it is presented in, and how much its
// values may be off, relative.
type Form struct {
	Config Config
	write  func(s *Stored, stem string, rows, cols int)
	Kind   quant.Type
	Limit  float64
}

// Forms are all forms that are read.
func Forms(t testing.TB) map[string]Form {
	compressed := func(format string, weights Config) Config {
		return Config{"quant_method": "compressed-tensors", "format": format, "quantization_status": "compressed", "ignore": []string{"lm_head"},
			"config_groups": Config{"group_0": Config{"targets": []string{"Linear"}, "weights": weights}}}
	}
	shuffled := func(s *Stored, cols, group int) []int {
		order := make([]int, cols)
		for i, c := range s.rng.Perm(cols) {
			order[c] = i / group
		}
		return order
	}
	int4 := Config{"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 32}
	return map[string]Form{
		"fp8 blocks": {Config{"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": []int{32, 32}},
			func(s *Stored, stem string, rows, cols int) {
				s.fp8(t, stem+"weight", "_scale_inv", rows, cols, 32, 32, (rows+31)/32, cols/32)
			}, quant.F8_E4M3, 0},
		"fp8 tensor": {Config{"quant_method": "fp8"}, func(s *Stored, stem string, rows, cols int) {
			s.fp8(t, stem+"weight", "_scale", rows, cols, rows, cols)
		}, quant.F8_E4M3, 0},
		"fp8 rows": {compressed("float-quantized", Config{"num_bits": 8, "type": "float", "strategy": "channel"}), func(s *Stored, stem string, rows, cols int) {
			s.fp8(t, stem+"weight", "_scale", rows, cols, 1, cols, rows, 1)
		}, quant.F8_E4M3, 0},
		"fp8 narrow blocks": {Config{"quant_method": "fp8", "weight_block_size": []int{16, 16}}, func(s *Stored, stem string, rows, cols int) {
			s.fp8(t, stem+"weight", "_scale_inv", rows, cols, 16, 16, rows/16, cols/16)
		}, quant.F32, 0},
		"int4": {compressed("pack-quantized", int4), func(s *Stored, stem string, rows, cols int) {
			s.packed(t, stem, rows, cols, 4, 32, true, nil)
		}, quant.Q4_0, 0},
		"int4 zero points": {compressed("pack-quantized", int4), func(s *Stored, stem string, rows, cols int) {
			s.packed(t, stem, rows, cols, 4, 64, false, nil)
		}, quant.Q5_0, 0},
		"int4 act-order": {compressed("pack-quantized", int4), func(s *Stored, stem string, rows, cols int) {
			s.packed(t, stem, rows, cols, 4, 32, true, shuffled(s, cols, 32))
		}, quant.F16, 0x1p-11},
		"int8 packed": {compressed("pack-quantized", int4), func(s *Stored, stem string, rows, cols int) {
			s.packed(t, stem, rows, cols, 8, cols, true, nil)
		}, quant.Q8_0, 0},
		"int8": {compressed("int-quantized", Config{"num_bits": 8, "type": "int", "strategy": "channel"}), func(s *Stored, stem string, rows, cols int) {
			s.int8s(t, stem, rows, cols)
		}, quant.Q8_0, 0},
		"nvfp4": {compressed("nvfp4-pack-quantized", Config{"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}),
			func(s *Stored, stem string, rows, cols int) { s.nvfp4(stem, rows, cols) }, quant.NVFP4_F32, 0},
		"awq": {Config{"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": true, "version": "gemm"},
			func(s *Stored, stem string, rows, cols int) { s.awq(t, stem, rows, cols, 64) }, quant.Q5_0, 0},
		"gptq": {Config{"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false, "sym": true},
			func(s *Stored, stem string, rows, cols int) { s.gptq(t, stem, rows, cols, 4, 32, true, nil) }, quant.Q4_0, 0},
		"gptq asymmetric": {Config{"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": false},
			func(s *Stored, stem string, rows, cols int) { s.gptq(t, stem, rows, cols, 4, 64, false, nil) }, quant.Q5_0, 0},
		"gptq 8 bits": {Config{"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": true},
			func(s *Stored, stem string, rows, cols int) { s.gptq(t, stem, rows, cols, 8, cols, true, nil) }, quant.Q8_0, 0},
		"gptq 2 bits": {Config{"quant_method": "gptq", "bits": 2, "group_size": 64, "sym": false},
			func(s *Stored, stem string, rows, cols int) { s.gptq(t, stem, rows, cols, 2, 64, false, nil) }, quant.Q4_0, 0},
		"gptq act-order": {Config{"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true, "sym": false},
			func(s *Stored, stem string, rows, cols int) {
				s.gptq(t, stem, rows, cols, 4, 32, false, shuffled(s, cols, 32))
			}, quant.F16, 0x1p-11},
	}
}

// Write makes the tensors of a model with its linear layers in the form, and the rest as F32.
func (f Form) Write(t testing.TB) *Stored {
	s, shapes := newStored(), Decoder(StoredConfig)
	for _, name := range shapes.Names() {
		shape := shapes[name]
		if strings.Contains(name, "_proj.") {
			f.write(s, strings.TrimSuffix(name, "weight"), shape[0], shape[1])
			continue
		}
		x := make([]float32, shape[0]*append(slices.Clone(shape), 1)[1])
		for i := range x {
			x[i] = float32(s.rng.NormFloat64() * 0.3)
		}
		s.put(name, "F32", shape, halves(t, quant.F32, x))
		s.Values[name] = x
	}
	return s
}

// Folder writes the model with a quantization_config.
func (s *Stored) Folder(t testing.TB, c Config) string {
	t.Helper()
	return s.Tensors.folder(t, StoredConfig.With(Config{"quantization_config": c}))
}

// Plain writes the model as what it stands for, in F32.
func (s *Stored) Plain(t testing.TB) string {
	t.Helper()
	plain := Raw{}
	for name, shape := range Decoder(StoredConfig) {
		plain[name] = RawTensor{"F32", shape, halves(t, quant.F32, s.Values[name])}
	}
	return plain.folder(t, StoredConfig)
}

func (r Raw) folder(t testing.TB, c Config) string {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(c)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
	}
	if err == nil {
		err = WriteRaw(filepath.Join(dir, "model.safetensors"), r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
