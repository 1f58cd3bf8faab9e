package hf

import (
	"encoding/json"
	"math"
	"strconv"

	"terrace/weights/gguf"
)

// maxKernel is the widest causal convolution.
const maxKernel = 256

// recurrentLayers publishes which layers are recurrent: what layer_types says, where kinds maps its words to true for those that are, else
// what def says. It returns the list, nil after a fault.
func (v *view) recurrentLayers(kinds map[string]bool, def func(i int) bool) []bool {
	list := v.cfg.list("layer_types", v.layers)
	out, flags := make([]bool, v.layers), make([]int32, v.layers)
	for i := range out {
		out[i] = def(i)
		if list != nil {
			word, _ := list[i].(string) // another type is no known word
			recurs, known := kinds[word]
			if !known {
				v.faults.add("%s: layer_types[%d] is %v, which is no layer of %s: %w", v.cfg.where, i, list[i], v.arch, ErrConfig)
				return nil
			}
			out[i] = recurs
		}
		if out[i] {
			flags[i] = 1
		}
	}
	v.set("attention.recurrent_layers", flags)
	return out
}

// recurs reports whether layer i is recurrent, by what the figures have published.
func (v *view) recurs(i int) bool {
	list, err := v.meta.Ints(v.arch + ".attention.recurrent_layers")
	return err == nil && list[i] != 0
}

// kvHeadsOf publishes the key/value heads of each layer: none in recurrent ones.
func (v *view) kvHeadsOf(recurs []bool) {
	heads := make([]int32, v.layers)
	for i := range heads {
		if i < len(recurs) && !recurs[i] {
			heads[i] = int32(v.kvHeads)
		}
	}
	v.set("attention.head_count_kv", heads)
}

// mapped presents a tensor with n elements as a vector of F32 whose elements went through fn.
func (v *view) mapped(name, hfName string, layer, n int, fn func(x float64) float64, shape ...int) {
	if len(shape) == 0 {
		shape = []int{n}
	}
	t := v.find(hfName, layer, shape...)
	if t == nil {
		return
	}
	v.add(gguf.NewTensor(name, f32, []int{n}, func() ([]byte, error) {
		x, err := floatsOf(t)
		if err != nil {
			return nil, err
		}
		for i := range x {
			x[i] = float32(fn(float64(x[i])))
		}
		return floatBytes(x), nil
	}))
}

// decay presents −e^A_log.
func (v *view) decay(name, hfName string, layer, n int, shape ...int) {
	v.mapped(name, hfName, layer, n, func(x float64) float64 { return -math.Exp(x) }, shape...)
}

// convolution presents the weights [channels, 1, kernel] of a causal convolution.
func (v *view) convolution(name, hfName string, layer, channels, kernel int) {
	v.flat(name, hfName, layer, []int{channels, 1, kernel}, kernel, 0, 1, channels, kernel)
}

// rowsPicked presents rows of a matrix [rows, cols] in another order, or some of them.
func (v *view) rowsPicked(name, hfName string, layer, rows, cols int, order []int) {
	t := v.find(hfName, layer, rows, cols)
	if t == nil {
		return
	}
	v.add(gguf.NewTensor(name, t.Type, []int{len(order), cols}, func() ([]byte, error) {
		raw, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		size := t.Type.RowBytes(cols)
		out := make([]byte, 0, len(order)*size)
		for _, r := range order {
			out = append(out, raw[r*size:(r+1)*size]...)
		}
		return out, nil
	}))
}

// ssm are the config keys of the figures of Mamba-2 mixers; families differ in them.
type ssm struct {
	heads, headDim, state, groups, kernel string
	defHeads, defDim, defState, defGroups int
}

// ssmFigures publishes the figures of Mamba-2 mixers whose inner width is inner; 0 = as wide as their heads.
func (v *view) ssmFigures(k ssm, inner int) {
	c := v.cfg
	heads, groups, dim := c.intOr(k.heads, k.defHeads, 1, maxHeads), c.intOr(k.groups, k.defGroups, 1, maxHeads), k.defDim
	if len(v.faults.list) > 0 {
		return
	}
	if text, ok := c.values[k.headDim].(string); ok && text == "auto" && inner > 0 {
		dim = inner / heads
	} else {
		dim = c.intOr(k.headDim, dim, 1, maxHeadDim)
	}
	v.refuseUnless(inner == 0 || inner == heads*dim, "%s %d of %s %d is not the inner width %d", k.heads, heads, k.headDim, dim, inner)
	v.refuseUnless(heads%groups == 0, "%s %d is not a multiple of %s %d", k.heads, heads, k.groups, groups)
	v.setInt("ssm.time_step_rank", heads)
	v.setInt("ssm.inner_size", heads*dim)
	v.setInt("ssm.group_count", groups)
	v.setInt("ssm.state_size", c.intOr(k.state, k.defState, 1, maxHeadDim))
	v.setInt("ssm.conv_kernel", c.intOr(k.kernel, 4, 1, maxKernel))
}

// timeStepLimit publishes the bounds of time_step_limit.
func (v *view) timeStepLimit() {
	const key = "time_step_limit"
	list := v.cfg.list(key, 2)
	if list == nil {
		return
	}
	bounds := [2]float64{0, math.Inf(1)}
	for i, x := range list {
		if m, ok := x.(map[string]any); ok && m["__float__"] == "Infinity" {
			continue
		}
		if x == "Infinity" {
			continue
		}
		num, _ := x.(json.Number)
		f, err := strconv.ParseFloat(num.String(), 64)
		if err != nil || f < 0 {
			v.cfg.wrong(key, "two numbers from 0 on")
			return
		}
		bounds[i] = f
	}
	v.refuseUnless(bounds[0] <= bounds[1], "%s is %g to %g", key, bounds[0], bounds[1])
	if bounds[0] > 0 {
		v.setOurs("ssm.dt_min", float32(bounds[0]))
	}
	if !math.IsInf(bounds[1], 1) {
		v.setOurs("ssm.dt_max", float32(bounds[1]))
	}
}

// ssmTensors presents a Mamba-2 mixer; projections and the convolution have biases where the config says so.
func (v *view) ssmTensors(i int, name, hfName string, bias, convBias, norm bool) {
	inner, heads, kernel := v.published("ssm.inner_size"), v.published("ssm.time_step_rank"), v.published("ssm.conv_kernel")
	channels := inner + 2*v.published("ssm.group_count")*v.published("ssm.state_size")
	v.linear(name+"ssm_in", hfName+"in_proj", i, inner+channels+heads, v.hidden, bias)
	v.convolution(name+"ssm_conv1d.weight", hfName+"conv1d.weight", i, channels, kernel)
	if convBias {
		v.vector(name+"ssm_conv1d.bias", hfName+"conv1d.bias", i, channels, 0)
	}
	v.decay(name+"ssm_a", hfName+"A_log", i, heads)
	v.vector(name+"ssm_dt.bias", hfName+"dt_bias", i, heads, 0)
	v.vector(name+"ssm_d", hfName+"D", i, heads, 0)
	if norm {
		v.vector(name+"ssm_norm.weight", hfName+"norm.weight", i, inner, 0)
	}
	v.linear(name+"ssm_out", hfName+"out_proj", i, v.hidden, inner, bias)
}
