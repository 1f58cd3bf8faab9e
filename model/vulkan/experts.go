package vulkan

import (
	"fmt"

	"terrace/internal/kernels"
	"terrace/internal/vulkan"
	"terrace/model"
)

// Limits of the kernels that choose experts: of shared memory, and of a row's threads.
const (
	mostExperts = 2048
	mostChosen  = 64
	mostGroups  = 64
)

// Flags of the kernels for experts.
const (
	weighed = 4 // of products, beside withBias and addTo

	chooseBias, chooseFactors, chooseNorm = 1, 2, 4

	joinBeside, joinGate, joinPlain, joinAdd = 1, 2, 4, 8
)

// mixing is what a mixture of experts needs: rows, their pairs with experts, and work groups that multiply those.
type mixing struct{ router, chosen, share, tasks, pairs, low, parts, sum, beside, doors slot }

// lacksExperts is what of a layer's mixture there are no kernels for; empty = nothing.
func lacksExperts(m *model.Model, layer int) string {
	l := &m.Params.Layers[layer]
	switch r := &m.Router; {
	case !m.Layer[layer].MoE:
	case m.Experts > mostExperts:
		return fmt.Sprintf("%d experts (%d at most)", m.Experts, mostExperts)
	case m.TopK > mostChosen:
		return fmt.Sprintf("%d experts a token (%d at most)", m.TopK, mostChosen)
	case r.Groups > mostGroups:
		return fmt.Sprintf("%d groups of experts (%d at most)", r.Groups, mostGroups)
	case l.Beside != nil && l.Beside.DensePost.W.Absent():
		return "a network beside experts without a norm"
	}
	return ""
}

// feed is the feed-forward part of a layer for n rows.
type feed struct {
	*steps
	l   *model.LayerParams
	moe bool
	n   int
}

func (s *steps) feed(layer, n int) *feed {
	return &feed{s, &s.m.Params.Layers[layer], s.m.Layer[layer].MoE, n}
}

// forward adds to the residual x what the layer's network or its experts make of it; in is x normed.
func (f *feed) forward(in, x span) {
	l, n, d := f.l, f.n, f.m.Hidden
	switch {
	case l.Beside != nil:
		y := f.room(&f.mixing.beside, n*d)
		f.dense(l.Gate, l.Up, l.Down, in, y)
		f.norm(l.Beside.DensePost, y, y, n, d)
		f.norm(l.Beside.RouterNorm, x, f.room(&f.scratch.normed, n*d), n, d)
		c := f.choose(f.on(&f.scratch.normed))
		f.norm(l.Beside.ExpertNorm, x, f.on(&f.scratch.normed), n, d)
		sum := f.room(&f.mixing.sum, n*d)
		c.join(c.experts(f.on(&f.scratch.normed)), joined{y: sum, scale: 1, width: d})
		f.normInto(l.Beside.ExpertPost, sum, y, n, d, 1, normAdd)
		f.addRows(y, x)
	case f.moe:
		f.mixture(in, x)
	default:
		f.addBlock(l.Down, l.PostFFNNorm, f.within(l.Gate, l.Up, in), x, n)
	}
}

// dense is y [n, rows] = down(act(gate(in))·up(in)).
func (f *feed) dense(gate, up, down *model.Linear, in, y span) {
	f.product(down, f.within(gate, up, in), y, f.n, 1, 0)
}

// within are the inner rows of a network: act(gate(in))·up(in).
func (f *feed) within(gate, up *model.Linear, in span) span {
	count := f.n * up.Rows
	y := f.room(&f.scratch.gate, count)
	if gate == nil {
		f.product(up, in, y, f.n, 1, 0)
		f.activate(uint32(f.m.Act), y, span{}, y, count, 0)
		return y
	}
	other := f.room(&f.scratch.parts, count)
	f.product(gate, in, y, f.n, 1, 0)
	f.besides(func() { f.product(up, in, other, f.n, 1, 0) })
	f.activate(uint32(f.m.Act), y, other, y, count, f.m.Clamp.Limit)
	return y
}

// mixture adds to x what experts and the network beside them make of the rows of in.
func (f *feed) mixture(in, x span) {
	l, n, d := f.l, f.n, f.m.Hidden
	c := f.choose(in)
	j := joined{y: x, scale: orOne(f.m.ResidualScale), width: d, flags: joinAdd}
	if !l.PostFFNNorm.W.Absent() {
		j = joined{y: f.room(&f.mixing.sum, n*d), scale: 1, width: d}
	}
	given := in
	if !l.ExpertIn.Absent() {
		given = f.room(&f.mixing.low, n*l.ExpertIn.Rows)
		f.besides(func() { f.product(l.ExpertIn, in, given, n, 1, 0) })
	}
	parts := c.experts(given)
	if !l.SharedUp.Absent() {
		j.beside = f.room(&f.mixing.beside, n*d)
		f.dense(l.SharedGate, l.SharedUp, l.SharedDown, in, j.beside)
		if !l.SharedRouter.Absent() {
			j.gate = f.room(&f.mixing.doors, n)
			f.besides(func() { f.product(l.SharedRouter, in, j.gate, n, 1, 0) })
		}
	}
	if !l.ExpertIn.Absent() {
		low := f.room(&f.mixing.low, n*l.ExpertIn.Rows)
		c.join(parts, joined{y: low, scale: 1, width: l.ExpertIn.Rows})
		flags := 0
		if j.flags != 0 {
			flags = addTo
		}
		f.product(l.ExpertOut, low, j.y, n, j.scale, flags)
		parts, j.flags = span{}, joinAdd
	}
	c.join(parts, j)
	if !l.PostFFNNorm.W.Absent() {
		f.normInto(l.PostFFNNorm, f.on(&f.mixing.sum), x, n, d, orOne(f.m.ResidualScale), normAdd)
	}
}

// addRows adds rows y to the residual x, normed where the layer has such a norm.
func (f *feed) addRows(y, x span) {
	if !f.l.PostFFNNorm.W.Absent() {
		f.normInto(f.l.PostFFNNorm, y, x, f.n, f.m.Hidden, orOne(f.m.ResidualScale), normAdd)
		return
	}
	c := &choice{feed: f}
	c.join(span{}, joined{y: x, beside: y, scale: orOne(f.m.ResidualScale), width: f.m.Hidden, flags: joinAdd})
}

// scale multiplies rows x by the layer's factor, if it has one.
func (f *feed) scale(x span) {
	factor, err := f.l.OutScale.Values()
	if f.keep(err); err != nil || factor == nil {
		return
	}
	c := &choice{feed: f}
	c.join(span{}, joined{y: x, beside: x, scale: factor[0], width: f.m.Hidden})
}

// choice is which experts rows have: pairs of a row and an expert, row by row, and work groups of pairs that share an expert.
type choice struct {
	*feed
	pairs int
	size  int // pairs of a work group at most
	tasks int
}

// choose has a router choose the experts of n rows.
func (f *feed) choose(in span) *choice {
	l, n, m, r := f.l, f.n, f.m, &f.m.Router
	c := &choice{feed: f, pairs: n * m.TopK}
	c.size = f.tall(groupsOf(c.pairs, m.Experts))
	c.tasks = min(c.pairs, c.pairs/c.size+m.Experts)
	logits := f.room(&f.mixing.router, n*m.Experts)
	f.product(l.Router, in, logits, n, 1, 0)
	chosen, share := f.room(&f.mixing.chosen, c.pairs), f.room(&f.mixing.share, c.pairs)
	tasks, pairs := f.room(&f.mixing.tasks, 3*c.tasks), f.room(&f.mixing.pairs, c.pairs)
	bias, factors, flags := f.vector(l.RouterBias), f.vector(l.ExpertScale), 0
	if !bias.absent() {
		flags |= chooseBias
	}
	if !factors.absent() {
		flags |= chooseFactors
	}
	if m.NormTopK {
		flags |= chooseNorm
	}
	gx, gy := f.grid(n)
	f.run("experts", push{}.at(logits).at(bias).at(factors).at(chosen).at(share).at(tasks).at(pairs).int(n).int(m.TopK).int(flags).float(orOne(r.Scale)).
		float(r.Least).float(r.Softcap).float(r.Jitter).int(r.Groups).int(r.GroupsUsed).int(r.GroupBest), gx, gy, 1, uint32(m.Experts), uint32(r.Score))
	if n > 1 {
		f.run("group", push{}.at(chosen).at(tasks).at(pairs).int(c.pairs).int(c.tasks), 1, 1, 1, uint32(m.Experts), uint32(c.size))
	}
	return c
}

// tall is how many rows a work group of products takes, where about so many are there for it.
func (f *feed) tall(rows int) int {
	at, most := 1, 8
	if f.p.Phase != kernels.Decode {
		at, most = 16, 64
	}
	for at < rows && at < most {
		at *= 2
	}
	return at
}

// experts is what the experts of each pair make of its row of given: [pairs, ExpertRow].
func (c *choice) experts(given span) span {
	m, l := c.m, c.l
	flags := 0
	if m.Router.OnInput {
		flags = weighed
	}
	width := l.ExpertUp[0].Rows
	gate := c.room(&c.scratch.gate, c.pairs*width)
	if len(l.ExpertGate) == 0 {
		c.products(l.ExpertUp, given, gate, m.TopK, flags)
		c.activate(uint32(m.Act), gate, span{}, gate, c.pairs*width, 0)
	} else {
		up := c.room(&c.scratch.up, c.pairs*width)
		c.products(l.ExpertGate, given, gate, m.TopK, flags)
		c.besides(func() { c.products(l.ExpertUp, given, up, m.TopK, flags) })
		c.activate(uint32(m.Act), gate, up, gate, c.pairs*width, m.Clamp.Limit)
	}
	parts := c.room(&c.mixing.parts, c.pairs*l.ExpertDown[0].Rows)
	c.products(l.ExpertDown, gate, parts, 1, 0)
	return parts
}

// products is y [pairs, rows] = W·x + bias of each pair's expert; a row of x belongs to each so many pairs.
func (c *choice) products(list []*model.Linear, x, y span, each, flags int) {
	w, err := c.weights.stack(list)
	if c.keep(err); c.err != nil {
		return
	}
	if w.biased {
		flags |= withBias
	}
	p := w.push(x, y, c.tasks, 1, flags).at(w.table).at(c.on(&c.mixing.tasks)).at(c.on(&c.mixing.pairs)).at(c.on(&c.mixing.share)).int(each)
	if c.p.Phase == kernels.Decode {
		gx, gy := c.grid(groupsOf(w.rows, 4))
		c.run("steps", p, gx, gy, c.tasks, uint32(w.typ), uint32(c.size), 1)
		return
	}
	c.run("tiles", p, groupsOf(w.rows, 64), c.tasks, 1, uint32(w.typ), uint32(c.size/16), 1)
}

// joined is what the sum of a row's experts goes to, and what is added to it.
type joined struct {
	y            span
	beside, gate span
	scale        float32
	width        int
	flags        int
}

// join sums the parts of each row's experts; absent = there are none.
func (c *choice) join(parts span, j joined) {
	most := c.m.TopK
	if parts.absent() {
		most = 0
	}
	if most == 0 && j.beside.absent() || c.err != nil {
		return
	}
	if !j.beside.absent() {
		j.flags |= joinBeside
	}
	if !j.gate.absent() {
		j.flags |= joinGate
	}
	if c.m.Router.OnInput {
		j.flags |= joinPlain
	}
	gx, gy := c.grid(groupsOf(c.n*j.width, 128))
	c.run("join", push{}.at(parts).at(c.on(&c.mixing.share)).at(j.beside).at(j.gate).at(j.y).int(c.n).int(j.width).int(most).float(j.scale).int(j.flags), gx, gy, 1)
}

// stack are the same weights of a layer's experts.
type stack struct {
	matrix      // of one, whose place is the table's
	table  span // [experts, 4]: addresses of rows and of biases
	biased bool
}

// stackBytes is how much of a stack is asked of the device at a time; tests have less.
var stackBytes int64 = 512 << 20

// stack returns the weights of a layer's experts.
func (w *weights) stack(list []*model.Linear) (*stack, error) {
	if got := w.stacks[list[0]]; got != nil {
		return got, nil
	}
	m := form(list[0])
	if err := m.reachable(list[0]); err != nil {
		return nil, err
	}
	s, size := &stack{matrix: *m}, 4*int64(m.stride)*int64(m.rows)
	var table []uint32
	var biases []float32
	var left span
	for i, l := range list {
		data, err := even(l, m)
		if err != nil {
			return nil, err
		}
		if left.size < size {
			if left, err = w.room(size*min(int64(len(list)-i), max(stackBytes/size, 1)), l.Tensor.Name); err != nil {
				return nil, err
			}
		}
		if err := w.r.upload(left, data); err != nil {
			return nil, deviceError(err)
		}
		table = append(table, uint32(left.address()), uint32(left.address()>>32), 0, 0)
		left = left.from(int(size))
		bias, err := l.BiasValues()
		if err != nil {
			return nil, err
		}
		biases = append(biases, bias...)
	}
	if s.biased = len(biases) > 0; s.biased {
		at, err := w.upload(vulkan.Bytes(biases), list[0].Tensor.Name)
		if err != nil {
			return nil, err
		}
		for i := range list {
			address := at.from(4 * m.rows * i).address()
			table[4*i+2], table[4*i+3] = uint32(address), uint32(address>>32)
		}
	}
	var err error
	if s.table, err = w.upload(vulkan.Bytes(table), list[0].Tensor.Name); err != nil {
		return nil, err
	}
	if w.stacks == nil {
		w.stacks = map[*model.Linear]*stack{}
	}
	w.stacks[list[0]] = s
	return s, nil
}

// expertsOf are the weights of a layer's experts.
func expertsOf(l *model.LayerParams) (lists [][]*model.Linear) {
	for _, list := range [][]*model.Linear{l.ExpertGate, l.ExpertUp, l.ExpertDown} {
		if len(list) > 0 {
			lists = append(lists, list)
		}
	}
	return lists
}

// putExperts uploads the weights of a layer's experts.
func (w *weights) putExperts(l *model.LayerParams) error {
	for _, list := range expertsOf(l) {
		if _, err := w.stack(list); err != nil {
			return err
		}
	}
	return nil
}
