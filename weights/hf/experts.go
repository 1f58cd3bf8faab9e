package hf

import (
	"fmt"

	"terrace/weights/gguf"
)

// expertNames are the names of an expert's three matrices.
type expertNames struct{ gate, up, down string }

var (
	projections = expertNames{"gate_proj", "up_proj", "down_proj"}
	numbered3   = expertNames{"w1", "w3", "w2"}
)

// expertsFrom reads how many experts a layer has and how many a token uses from keys of a family's own.
func (v *view) expertsFrom(countKey, usedKey string, def, usedDef int) (experts int) {
	experts = v.cfg.intOr(countKey, def, 1, maxExperts)
	used := v.cfg.intOr(usedKey, usedDef, 1, maxExperts)
	if used > experts {
		v.faults.add("%s: %s %d is more than %s %d: %w", v.cfg.where, usedKey, used, countKey, experts, ErrConfig)
	}
	v.setInt("expert_count", experts)
	v.setInt("expert_used_count", used)
	return experts
}

// expertWidth reads the inner width of an expert.
func (v *view) expertWidth(key string, def int) int {
	width := v.cfg.intUnless(key, def, maxWidth)
	v.setInt("expert_feed_forward_length", width)
	return width
}

// published reads a count that the figures have published.
func (v *view) published(key string) int {
	n, _ := v.meta.Int(v.arch + "." + key) // absent: none
	return n
}

// mixes reports whether layer i is a mixture of experts, by what the figures have published.
func (v *view) mixes(i int) bool {
	if list, err := v.meta.Ints("terrace.moe.layers"); err == nil {
		return list[i] != 0
	}
	return v.published("expert_count") > 0 && i >= v.published("leading_dense_block_count")
}

// mixingLayers publishes which layers are mixtures.
func (v *view) mixingLayers(mixes func(i int) bool) {
	list := make([]int32, v.layers)
	for i := range list {
		if mixes(i) {
			list[i] = 1
		}
	}
	v.setOurs("moe.layers", list)
}

// mlpLayerTypes publishes which layers are mixtures by a list of "sparse" and "dense"; without one all are.
func (v *view) mlpLayerTypes() {
	const key = "mlp_layer_types"
	list := v.cfg.list(key, v.layers)
	if list == nil {
		return
	}
	for i, x := range list {
		if x != "sparse" && x != "dense" {
			v.faults.add("%s: %s[%d] is %v, want sparse or dense: %w", v.cfg.where, key, i, x, ErrConfig)
			return
		}
	}
	v.mixingLayers(func(i int) bool { return list[i] == "sparse" })
}

// expertStacks presents the experts below stem ("….mlp.experts."), which lie there one by one or packed: gate rows before up rows.
func (v *view) expertStacks(i int, name, stem string, names expertNames) {
	experts, width := v.published("expert_count"), v.published("expert_feed_forward_length")
	if width == 0 {
		width = v.ffn
	}
	if v.files.tensor(v.prefix+stem+"gate_up_proj") != nil {
		v.packedExperts(i, name, stem+"gate_up_proj", stem+"down_proj", experts, width)
		return
	}
	v.stack(name+"ffn_gate_exps.weight", stem+"%d."+names.gate+".weight", i, experts, width, v.hidden)
	v.stack(name+"ffn_down_exps.weight", stem+"%d."+names.down+".weight", i, experts, v.hidden, width)
	v.stack(name+"ffn_up_exps.weight", stem+"%d."+names.up+".weight", i, experts, width, v.hidden)
}

// packedExperts presents experts that lie in two tensors, [E, 2I, H] with the gate's rows first and [E, H, I].
func (v *view) packedExperts(i int, name, both, down string, experts, width int) {
	v.rowsOf(name+"ffn_gate_exps.weight", both, i, experts, 2*width, v.hidden, 0, 1)
	v.rowsOf(name+"ffn_up_exps.weight", both, i, experts, 2*width, v.hidden, width, 1)
	if t := v.find(down, i, experts, v.hidden, width); t != nil {
		v.add(sameBytes(name+"ffn_down_exps.weight", t, experts, v.hidden, width))
	}
}

// rowsOf presents half of the rows of each expert of a tensor [E, rows, cols]: from first on, step apart.
func (v *view) rowsOf(name, hfName string, layer, experts, rows, cols, first, step int) {
	t := v.find(hfName, layer, experts, rows, cols)
	if t == nil {
		return
	}
	if step == 1 {
		v.add(v.halves(name, t, experts, rows, cols, first))
		return
	}
	v.add(gguf.NewTensor(name, t.Type, []int{experts, rows / 2, cols}, func() ([]byte, error) {
		raw, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		return everyRow(raw, experts, rows, t.Type.RowBytes(cols), first, step), nil
	}))
}

// halves stacks half of the rows of each expert, which lie together from first on, so that each expert's can be read alone.
func (v *view) halves(name string, t *gguf.Tensor, experts, rows, cols, first int) *gguf.Tensor {
	parts, row := make([]*gguf.Tensor, experts), t.Type.RowBytes(cols)
	for e := range parts {
		from := e*rows + first
		parts[e] = gguf.NewTensor(fmt.Sprintf("%s, expert %d", name, e), t.Type, []int{rows / 2, cols}, func() ([]byte, error) {
			raw := t.Raw()
			if raw == nil {
				return t.Bytes()
			}
			return raw[from*row : (from+rows/2)*row : (from+rows/2)*row], nil
		})
		if path, offset, ok := t.Where(from, rows/2); ok {
			parts[e].At(path, offset)
		}
	}
	return gguf.Stack(name, parts)
}

// everyRow takes half of the rows of each expert: from first on, step apart.
func everyRow(raw []byte, experts, rows, rowBytes, first, step int) []byte {
	out := make([]byte, 0, len(raw)/2)
	for e := range experts {
		for r := range rows / 2 {
			at := (e*rows + first + r*step) * rowBytes
			out = append(out, raw[at:at+rowBytes]...)
		}
	}
	return out
}

// columnsOf presents a tensor [E, in, out] as [E, taken, in]: of its columns those from first on, step apart.
func (v *view) columnsOf(name, hfName string, layer, experts, in, out, first, step, taken int) {
	t := v.find(hfName, layer, experts, in, out)
	if t == nil {
		return
	}
	t = plain(t)
	v.add(gguf.NewTensor(name, t.Type, []int{experts, taken, in}, func() ([]byte, error) {
		raw, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		size := t.Type.BlockBytes()
		dst := make([]byte, 0, experts*taken*in*size)
		for e := range experts {
			for c := range taken {
				for r := range in {
					at := ((e*in+r)*out + first + c*step) * size
					dst = append(dst, raw[at:at+size]...)
				}
			}
		}
		return dst, nil
	}))
}

// flat presents a tensor of any shape with n elements as a vector of F32: of each row of cols elements, those from first on, step apart.
func (v *view) flat(name, hfName string, layer int, shape []int, cols, first, step int, out ...int) {
	t := v.find(hfName, layer, shape...)
	if t == nil {
		return
	}
	v.add(gguf.NewTensor(name, f32, out, func() ([]byte, error) {
		x, err := floatsOf(t)
		if err != nil {
			return nil, err
		}
		var taken []float32
		for row := 0; row < len(x); row += cols {
			for c := first; c < cols; c += step {
				taken = append(taken, x[row+c])
			}
		}
		return floatBytes(taken), nil
	}))
}

// choiceBias presents the bias by which experts are chosen.
func (v *view) choiceBias(i int, name, hfName string, shape ...int) {
	experts := v.published("expert_count")
	v.flat(name+"exp_probs_b.bias", hfName, i, append(shape, experts), experts, 0, 1, experts)
}

// sharedExpert presents the network beside the experts.
func (v *view) sharedExpert(i int, name, hfName string, width int, bias bool) {
	v.linear(name+"ffn_gate_shexp", hfName+"gate_proj", i, width, v.hidden, bias)
	v.linear(name+"ffn_up_shexp", hfName+"up_proj", i, width, v.hidden, bias)
	v.linear(name+"ffn_down_shexp", hfName+"down_proj", i, v.hidden, width, bias)
}

// refuseUnless adds a fault where a figure that changes what is computed has a value that is not.
func (v *view) refuseUnless(ok bool, format string, args ...any) {
	if !ok {
		v.faults.add("%s: %s: %w", v.cfg.where, fmt.Sprintf(format, args...), ErrConfig)
	}
}
