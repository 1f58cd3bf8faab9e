package xla

import "terrace/model"

// weights holds the device copies of what has been used: matrices in the backend's type, vectors and routers (whose
// near ties rounding would turn) in float32.
type weights struct {
	d       *device
	half    bool
	linears map[*model.Linear][2]operand // weight, bias
	vectors map[*model.Vector]operand
	stacks  map[*model.Linear][2]operand // experts and their biases, by the first of them
}

func newWeights(d *device, half bool) *weights {
	return &weights{d: d, half: half, linears: map[*model.Linear][2]operand{}, vectors: map[*model.Vector]operand{}, stacks: map[*model.Linear][2]operand{}}
}

// upload copies values, whole or in the backend's type.
func (w *weights) upload(x []float32, whole bool, dims ...int) (o operand, err error) {
	if w.half && !whole {
		o, err = upload(w.d, "weights", -1, rounded(x), dims...)
	} else {
		o, err = upload(w.d, "weights", -1, x, dims...)
	}
	w.d.counts.WeightBytes += o.bytes()
	return o, err
}

// linear returns a weight [rows, cols] and its bias [rows], absent where there is none; whole keeps it in float32.
func (w *weights) linear(l *model.Linear, whole bool) (weight, bias operand, err error) {
	if got, ok := w.linears[l]; ok {
		return got[0], got[1], nil
	}
	x, err := l.Values()
	if err != nil {
		return operand{}, operand{}, err
	}
	if weight, err = w.upload(x, whole, l.Rows, l.Cols); err != nil {
		return operand{}, operand{}, err
	}
	if x, err = l.BiasValues(); err != nil {
		return operand{}, operand{}, err
	}
	if x != nil {
		if bias, err = w.upload(x, true, l.Rows); err != nil {
			return operand{}, operand{}, err
		}
	}
	w.linears[l] = [2]operand{weight, bias}
	return weight, bias, nil
}

// free gives the device's memory back.
func (w *weights) free() {
	for _, l := range w.linears {
		l[0].free()
		l[1].free()
	}
	for _, v := range w.vectors {
		v.free()
	}
	for _, s := range w.stacks {
		s[0].free()
		s[1].free()
	}
}

// vector returns a small tensor.
func (w *weights) vector(v *model.Vector) (operand, error) { return w.chain([]*model.Vector{v}) }

// stack returns the weights of a layer's experts as one tensor [experts, rows, cols], and their biases [experts, rows], absent where there
// are none; of no experts nothing.
func (w *weights) stack(list []*model.Linear) (weight, bias operand, err error) {
	if len(list) == 0 {
		return operand{}, operand{}, nil
	}
	if got, ok := w.stacks[list[0]]; ok {
		return got[0], got[1], nil
	}
	var all, biases []float32
	for _, l := range list {
		x, err := l.Values()
		if err != nil {
			return operand{}, operand{}, err
		}
		all = append(all, x...)
		if x, err = l.BiasValues(); err != nil {
			return operand{}, operand{}, err
		}
		biases = append(biases, x...)
	}
	if weight, err = w.upload(all, false, len(list), list[0].Rows, list[0].Cols); err == nil && biases != nil {
		bias, err = w.upload(biases, true, len(list), list[0].Rows)
	}
	if err == nil {
		w.stacks[list[0]] = [2]operand{weight, bias}
	}
	return weight, bias, err
}

// chain returns small tensors one behind another.
func (w *weights) chain(list []*model.Vector) (operand, error) {
	if got, ok := w.vectors[list[0]]; ok {
		return got, nil
	}
	var all []float32
	for _, v := range list {
		x, err := v.Values()
		if err != nil {
			return operand{}, err
		}
		all = append(all, x...)
	}
	o, err := w.upload(all, true, len(all))
	if err == nil {
		w.vectors[list[0]] = o
	}
	return o, err
}
