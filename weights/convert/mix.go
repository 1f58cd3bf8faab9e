package convert

import (
	"fmt"
	"slices"
	"strings"

	"terrace/internal/kernels/quant"
	"terrace/internal/nearest"
	"terrace/weights/gguf"
)

// Mix gives tensors types by what they are and in which layer, as llama.cpp's quantize does (src/llama-quant.cpp at 007dbbf,
// llama_tensor_get_type_impl). The zero value is one type for all.
type Mix struct {
	Name     string     // Q4_K_M; "" = no mix
	Base     quant.Type // of what no rule names
	fileType uint32     // general.file_type
}

// Mixes are those that can be written, in the order of their sizes.
func Mixes() []Mix {
	return []Mix{
		{"Q3_K_S", quant.Q3_K, 11}, {"Q3_K_M", quant.Q3_K, 12}, {"Q3_K_L", quant.Q3_K, 13}, {"IQ4_XS", quant.IQ4_XS, 30}, {"IQ4_NL", quant.IQ4_NL, 25},
		{"Q4_K_S", quant.Q4_K, 14}, {"Q4_K_M", quant.Q4_K, 15}, {"Q5_K_S", quant.Q5_K, 16}, {"Q5_K_M", quant.Q5_K, 17},
	}
}

// ParseKind reads a type (Q8_0) or a mix (Q4_K_M) in any case; ErrType says why others cannot be written.
func ParseKind(s string) (quant.Type, Mix, error) {
	for _, m := range Mixes() {
		if strings.EqualFold(s, m.Name) {
			return m.Base, m, nil
		}
	}
	if name := strings.ToUpper(s); name == "Q2_K_S" || name == "Q2_K_M" {
		return 0, Mix{}, fmt.Errorf("convert: %s is mostly Q2_K, which can be read but not written: %w", name, ErrType)
	}
	t, err := quant.ParseType(s)
	if err != nil {
		names := Writable()
		err = fmt.Errorf("convert: type %q: %w%s (known: %s)", s, quant.ErrUnknownType, nearest.Hint(s, names), strings.Join(names, " "))
	}
	return t, Mix{}, err
}

// Writable are the names of the types and mixes that can be written, in alphabetical order.
func Writable() (names []string) {
	for _, t := range quant.Types() {
		if t.Writable() {
			names = append(names, t.String())
		}
	}
	for _, m := range Mixes() {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return slices.Compact(names) // IQ4_XS and IQ4_NL are mixes by the name of their base
}

// shapeOf is what the rules look at beside a tensor's name.
type shapeOf struct {
	arch           string
	layers         int
	experts        int
	grouped        bool // fewer KV heads than heads
	ratio          int  // heads a KV head
	weighted       bool // under an importance matrix
	tied           bool // no output.weight
	valueLayers    []int
	valueLayersSet map[int]int // layer to its place among those with value projections
}

func shapeFor(meta *gguf.Meta, tensors []*gguf.Tensor) shapeOf {
	s := shapeOf{tied: true, valueLayersSet: map[int]int{}}
	s.arch, _ = meta.String("general.architecture") // what is not there has no rule
	s.layers, _ = meta.Int(s.arch + ".block_count")
	s.experts, _ = meta.Int(s.arch + ".expert_count")
	heads, _ := meta.Int(s.arch + ".attention.head_count")
	kv, err := meta.Int(s.arch + ".attention.head_count_kv")
	s.grouped = err == nil && kv < heads
	if err == nil && kv > 0 {
		s.ratio = heads / kv
	}
	for _, t := range tensors {
		if t.Name == "output.weight" {
			s.tied = false
		}
		if layer, part, ok := inLayer(t.Name); ok && isValue(part) {
			s.valueLayers = append(s.valueLayers, layer)
		}
	}
	slices.Sort(s.valueLayers)
	for i, layer := range s.valueLayers {
		s.valueLayersSet[layer] = i
	}
	return s
}

// inLayer splits blk.3.attn_v.weight into 3 and attn_v.weight.
func inLayer(name string) (layer int, part string, ok bool) {
	rest, ok := strings.CutPrefix(name, "blk.")
	number, part, dot := strings.Cut(rest, ".")
	if _, err := fmt.Sscanf(number, "%d", &layer); !ok || !dot || err != nil {
		return 0, "", false
	}
	return layer, part, true
}

// isValue reports whether a part of a layer is a value projection, or holds one.
func isValue(part string) bool {
	return part == "attn_v.weight" || part == "attn_qkv.weight" || part == "attn_kv_b.weight"
}

// typeOf is the type that the mix gives a matrix with rows of cols values.
func (m Mix) typeOf(s *shapeOf, name string, cols int) quant.Type {
	if name == "output.weight" || s.tied && name == "token_embd.weight" {
		if cols%m.Base.BlockLen() != 0 {
			return quant.Q8_0
		}
		return quant.Q6_K
	}
	layer, part, ok := inLayer(name)
	switch {
	case !ok:
		return m.Base
	case isValue(part):
		return m.valueType(s, s.valueLayersSet[layer])
	case part == "attn_k.weight" && s.experts == 8:
		return quant.Q8_0
	case part == "attn_output.weight":
		return m.outputType(s)
	case strings.HasPrefix(part, "ffn_down"):
		return m.downType(s, layer)
	}
	return m.Base
}

// outputType is that of the projection behind attention.
func (m Mix) outputType(s *shapeOf) quant.Type {
	switch {
	case s.experts == 8 && m.Name != "Q3_K_L" && m.Base != quant.Q5_K:
		return quant.Q5_K
	case s.experts != 8 && m.Name == "Q3_K_M":
		return quant.Q4_K
	case s.experts != 8 && m.Name == "Q3_K_L":
		return quant.Q5_K
	}
	return m.Base
}

// downType is that of the last product of a layer's feed-forward network.
func (m Mix) downType(s *shapeOf, layer int) quant.Type {
	switch m.Name {
	case "Q4_K_M", "Q5_K_M":
		if moreBits(layer, s.layers) {
			return quant.Q6_K
		}
	case "Q4_K_S":
		if layer < s.layers/8 {
			return quant.Q5_K
		}
	case "IQ4_XS", "IQ4_NL":
		if layer < s.layers/8 && !s.weighted {
			return quant.Q5_K
		}
	case "Q3_K_M":
		if layer < s.layers/16 {
			return quant.Q5_K
		}
		return quant.Q4_K
	case "Q3_K_L":
		return quant.Q5_K
	}
	return m.Base
}

// valueType is that of the i-th value projection.
func (m Mix) valueType(s *shapeOf, i int) quant.Type {
	kind := m.Base
	switch m.Name {
	case "Q4_K_M", "Q5_K_M":
		if moreBits(i, len(s.valueLayers)) {
			kind = quant.Q6_K
		}
	case "Q4_K_S":
		if i < 4 {
			kind = quant.Q5_K
		}
	case "IQ4_XS", "IQ4_NL":
		if s.ratio >= 4 {
			kind = quant.Q5_K
		}
	case "Q3_K_M":
		kind = quant.Q4_K
		if i < 2 {
			kind = quant.Q5_K
		}
	case "Q3_K_L":
		kind = quant.Q5_K
	}
	if s.experts == 8 {
		return quant.Q8_0
	}
	// The 70B models of 80 layers share a value projection among 8 heads: more bits cost little.
	if (kind == quant.Q3_K || kind == quant.Q4_K) && s.layers == 80 && (s.arch == "llama" && s.grouped || s.arch == "qwen2") {
		kind = quant.Q5_K
	}
	return kind
}

// moreBits are the first and last eighth of the layers, and every third between.
func moreBits(layer, layers int) bool {
	return layer < layers/8 || layer >= 7*layers/8 || (layer-layers/8)%3 == 2
}
