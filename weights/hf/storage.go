package hf

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
	"terrace/weights/safetensors"
)

// storage is how a quantised checkpoint keeps its matrices: what its quantization_config says, checked.
type storage struct {
	method string
	bits   int // of an integer; 0: what the tensors say
	group  int // columns that share a scale; -1: all of a row
	// plusOne: stored zero points are one less (GPTQ before version 2); free: columns have any group (act-order); symmetric: the zero point is
	// the middle of the range.
	plusOne, free, symmetric bool
	block                    [2]int // rows and columns of FP8 that share a scale; 0: what the scales' shape says
}

// methods read the keys of each quant_method that is known.
var methods = map[string]func(q fields) storage{
	"fp8": fp8Storage, "compressed-tensors": compressedStorage, "awq": awqStorage, "gptq": gptqStorage,
}

// readStorage reads a quantization_config. An unknown method is a fault: such weights mean nothing without it.
func (v *view) readStorage() {
	q, ok := v.cfg.object("quantization_config")
	if !ok {
		return
	}
	method := q.stringOr("quant_method", "unnamed")
	if method == "mxfp4" && v.cfg.stringOr("model_type", "") == "gpt_oss" {
		return // its tensors say themselves how they are stored
	}
	read := methods[method]
	if read == nil {
		v.faults.add("%s: quantization_config with quant_method %q: %w (known: %s, mxfp4 of gpt_oss; use the original model, or a GGUF file)",
			v.cfg.where, method, ErrQuantized, strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
		return
	}
	s := read(q)
	s.method = method
	v.storage = &s
}

// only refuses keys that are neither in the list nor null: what they mean for the weights is not known.
func (f fields) only(keys ...string) {
	for _, k := range slices.Sorted(maps.Keys(f.values)) {
		if f.has(k) && !slices.Contains(keys, k) {
			f.faults.add("%s: key %q is not known: %w", f.where, k, ErrQuantized)
		}
	}
}

// want refuses a key whose value is another than those that are computed with.
func (f fields) want(key, def string, allowed ...string) {
	if got := strings.ToLower(f.stringOr(key, def)); !slices.Contains(allowed, got) {
		f.faults.add("%s: %s is %q, want %s: %w", f.where, key, got, strings.Join(allowed, " or "), ErrQuantized)
	}
}

// groupOf reads a number of columns that share a scale, -1 for all.
func (f fields) groupOf(key string, def int) int {
	g := f.intOr(key, def, -1, maxWidth)
	if g == 0 {
		f.wrong(key, "-1 or above 0")
	}
	return g
}

func fp8Storage(q fields) storage {
	q.only("quant_method", "fmt", "activation_scheme", "weight_block_size", "modules_to_not_convert", "ignored_layers", "scale_fmt", "dequantize",
		"weight_per_tensor", "act_per_tensor", "use_deep_gemm")
	q.want("fmt", "e4m3", "e4m3", "float8_e4m3fn")
	q.want("activation_scheme", "dynamic", "dynamic", "static")
	return storage{block: q.blockOf("weight_block_size")}
}

// blockOf reads rows and columns that share a scale.
func (f fields) blockOf(key string) (block [2]int) {
	if f.has(key) {
		for i, n := range f.numbers(key, 2, 1, maxWidth) {
			if block[i] = int(n); float32(block[i]) != n {
				f.wrong(key, "two whole numbers")
			}
		}
	}
	return block
}

func awqStorage(q fields) storage {
	q.only("quant_method", "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version", "modules_to_not_convert", "backend", "do_fuse",
		"fuse_max_seq_len", "exllama_config", "modules_to_fuse", "desc_act", "sym", "format", "pack_dtype", "meta")
	q.want("version", "gemm", "gemm")
	bits := q.intOr("w_bit", 4, 1, 64)
	if bits = q.intOr("bits", bits, 1, 64); bits != 4 {
		q.faults.add("%s: bits is %d, want 4: %w", q.where, bits, ErrQuantized)
	}
	if !q.boolOr("zero_point", true) {
		q.faults.add("%s: zero_point is false: %w", q.where, ErrQuantized)
	}
	return storage{bits: 4, group: q.groupOf("group_size", q.groupOf("q_group_size", 128))}
}

func gptqStorage(q fields) storage {
	q.only("quant_method", "bits", "group_size", "desc_act", "sym", "lm_head", "damp_percent", "damp_auto_increment", "static_groups", "true_sequential",
		"model_name_or_path", "model_file_base_name", "checkpoint_format", "pack_dtype", "meta", "dataset", "tokenizer", "use_cuda_fp16", "use_exllama",
		"disable_exllama", "exllama_config", "cache_block_outputs", "modules_in_block_to_quantize", "block_name_to_quantize", "module_name_preceding_first_block",
		"batch_size", "pad_token_id", "max_input_length", "model_seqlen", "backend", "format", "is_marlin_format", "quantizer", "mse", "dynamic")
	q.want("checkpoint_format", "gptq", "gptq", "gptq_v2")
	q.want("format", "gptq", "gptq", "gptq_v2")
	q.want("pack_dtype", "int32", "int32")
	if q.boolOr("is_marlin_format", false) {
		q.faults.add("%s: is_marlin_format is true: %w", q.where, ErrQuantized)
	}
	if d, ok := q.object("dynamic"); ok && len(d.values) > 0 {
		q.faults.add("%s: dynamic: modules of their own settings: %w", q.where, ErrQuantized)
	}
	s := storage{bits: q.int("bits", 1, 64), group: q.groupOf("group_size", 128), symmetric: q.boolOr("sym", true)}
	s.plusOne = q.stringOr("checkpoint_format", q.stringOr("format", "gptq")) == "gptq"
	s.free = q.boolOr("desc_act", false) && s.group > 0
	if s.bits != 2 && s.bits != 4 && s.bits != 8 {
		q.faults.add("%s: bits is %d, want 2, 4 or 8: %w", q.where, s.bits, ErrQuantized)
	}
	return s
}

// unpackStored adds the matrices of a quantised checkpoint, under the names that unquantised ones have.
func (v *view) unpackStored() {
	if v.storage == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(v.files.origin)) {
		var t *gguf.Tensor
		stem, last := name, ""
		if i := strings.LastIndexByte(name, '.'); i >= 0 {
			stem, last = name[:i+1], name[i+1:]
		}
		switch {
		case last == "qweight" && v.storage.method == "awq":
			name, t = stem+"weight", v.awq(stem)
		case last == "qweight" && v.storage.method == "gptq":
			name, t = stem+"weight", v.gptq(stem)
		case last == "weight_packed" && v.storage.method == "compressed-tensors":
			name, t = stem+"weight", v.packed(stem)
		case v.files.dtypes[name] == "F8_E4M3" && (v.storage.method == "fp8" || v.storage.method == "compressed-tensors") && !strings.Contains(last, "_scale"):
			t = v.fp8(name)
		case last == "weight" && v.files.dtypes[name] == "I8" && v.storage.method == "compressed-tensors":
			t = v.int8s(name)
		}
		if t != nil {
			v.files.tensors[name] = t
			delete(v.files.dtypes, name)
			if v.files.origin[name] == "" {
				v.files.origin[name] = v.files.origin[stem+last]
			}
		}
		if len(v.faults.list) > 0 {
			return
		}
	}
}

// entry finds a tensor of any dtype in the files.
func (s *shards) entry(name string) (f *safetensors.File, e safetensors.Entry, ok bool) {
	for _, f := range s.files {
		if e, ok := f.Entry(name); ok {
			return f, e, true
		}
	}
	return nil, e, false
}

// part finds a tensor that belongs to a stored matrix and checks its dtype and dimensions; a fault and nil otherwise. A want of -1 is any
// length.
func (v *view) part(name, dtype string, want ...int) (data func() []byte, shape []int) {
	f, e, ok := v.files.entry(name)
	where := filepath.Base(v.files.path)
	if !ok {
		v.faults.add("%s: tensor %q: %w", where, name, ErrMissingTensor)
		return nil, nil
	}
	fits := e.DType == dtype && len(e.Shape) == len(want)
	for i := range min(len(want), len(e.Shape)) {
		fits = fits && e.Shape[i] > 0 && (want[i] < 0 || want[i] == e.Shape[i])
	}
	if !fits {
		text := strings.ReplaceAll(fmt.Sprint(want), "-1", "any")
		v.faults.add("%s: tensor %q: %s %v, want %s %s: %w", filepath.Base(f.Path()), name, e.DType, e.Shape, dtype, text, ErrShape)
		return nil, nil
	}
	return func() []byte { return f.Bytes(name) }, e.Shape
}

// floatPart finds the scales of a stored matrix, F32, F16 or BF16 with one of the shapes given; nil after a fault.
func (v *view) floatPart(name string, shapes ...[]int) *gguf.Tensor {
	t := v.files.tensor(name)
	if t == nil {
		if f, e, ok := v.files.entry(name); ok && len(e.Shape) == 0 && e.DType == "F32" { // a scalar
			return gguf.NewTensor(name, quant.F32, []int{1}, func() ([]byte, error) { return f.Bytes(name), nil })
		}
		v.faults.add("%s: tensor %q (F32, F16 or BF16): %w", filepath.Base(v.files.path), name, ErrMissingTensor)
		return nil
	}
	for _, want := range shapes {
		if slices.Equal(t.Shape, want) {
			return t
		}
	}
	v.faults.add("%s: tensor %q: shape %v, want %v: %w", filepath.Base(v.files.fileOf(name)), name, t.Shape, shapes, ErrShape)
	return nil
}

// fp8 presents a matrix [rows, cols], or one of each expert, of FP8 codes under scales of blocks, rows, or the whole.
func (v *view) fp8(name string) *gguf.Tensor {
	f, e, _ := v.files.entry(name)
	if len(e.Shape) < 2 || slices.Contains(e.Shape, 0) {
		return nil // find refuses it by name
	}
	last := len(e.Shape) - 1
	lead, rows, cols := 1, e.Shape[last-1], e.Shape[last]
	for _, n := range e.Shape[:last-1] {
		lead *= n
	}
	block := v.storage.block
	scaleName := name + "_scale_inv"
	if v.files.origin[scaleName] == "" {
		scaleName = name + "_scale"
	}
	under := func(r, c int) []int { return append(slices.Clone(e.Shape[:last-1]), r, c) }
	ones := make([]int, len(e.Shape))
	for i := range ones {
		ones[i] = 1
	}
	shapes := [][]int{{1}, ones, under(1, 1), under(rows, 1), {rows}}
	if block[0] > 0 {
		shapes = append([][]int{under((rows+block[0]-1)/block[0], (cols+block[1]-1)/block[1])}, shapes...)
	}
	scales := v.floatPart(scaleName, shapes...)
	if scales == nil {
		return nil
	}
	g := grid{rows: rows, cols: cols, across: 1, byRows: rows, byCols: cols, lead: scales.Rows()*scales.Cols() > 1 && len(scales.Shape) == len(e.Shape)}
	switch {
	case block[0] > 0 && slices.Equal(scales.Shape, shapes[0]):
		g.byRows, g.byCols, g.across = block[0], block[1], (cols+block[1]-1)/block[1]
	case scales.Rows()*scales.Cols() == lead*rows, len(scales.Shape) == 1 && scales.Shape[0] == rows && rows > 1:
		g.byRows = 1
	}
	kind := quant.F8_E4M3
	if cols%32 != 0 || g.byCols%32 != 0 && g.byCols < cols {
		kind = quant.F32
	}
	return gguf.NewTensor(name, kind, e.Shape, func() ([]byte, error) {
		x, err := floatsOf(scales)
		if err != nil {
			return nil, err
		}
		return g.encode(kind, f.Bytes(name), x, lead), nil
	})
}

// grid says which scale a code has.
type grid struct {
	rows, cols     int
	byRows, byCols int // of a block
	across         int // blocks of a row
	lead           bool
}

// encode writes lead matrices of codes as blocks of F8_E4M3, or as F32.
func (g grid) encode(kind quant.Type, codes []byte, scales []float32, lead int) []byte {
	rowBytes := kind.RowBytes(g.cols)
	out := make([]byte, lead*g.rows*rowBytes)
	down := (g.rows + g.byRows - 1) / g.byRows
	for m := range lead {
		for r := range g.rows {
			row := scales[r/g.byRows*g.across:]
			if g.lead {
				row = scales[(m*down+r/g.byRows)*g.across:]
			}
			at := m*g.rows + r
			dst, src := out[at*rowBytes:(at+1)*rowBytes], codes[at*g.cols:(at+1)*g.cols]
			for c := 0; c < g.cols; {
				scale, n := row[c/g.byCols], 32
				if kind == quant.F32 {
					n = 1
					putFloat(dst[4*c:], quant.E4M3(src[c])*scale)
				} else {
					b := dst[c/32*36:]
					putFloat(b, scale)
					copy(b[4:36], src[c:c+32])
				}
				c += n
			}
		}
	}
	return out
}

func putFloat(b []byte, x float32) {
	bits := math.Float32bits(x)
	b[0], b[1], b[2], b[3] = byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24)
}

// plain is a tensor whose numbers can be taken one by one: t itself, or its values as F32 where it has blocks.
func plain(t *gguf.Tensor) *gguf.Tensor {
	if t.Type.BlockLen() == 1 {
		return t
	}
	return gguf.NewTensor(t.Name, quant.F32, t.Shape, func() ([]byte, error) {
		x, err := floatsOf(t)
		if err != nil {
			return nil, err
		}
		return floatBytes(x), nil
	})
}
