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

// feedForward adds to the residual x what the layer's network or its experts make of it; in is x normed.
func (s *steps) feedForward(layer int, in, x span, n int) {
	l, wide := &s.m.Params.Layers[layer], n*s.m.Hidden
	switch {
	case l.Beside != nil:
		y := s.room(&s.mixing.beside, wide)
		s.dense(l.Gate, l.Up, l.Down, in, y, n)
		s.norm(l.Beside.DensePost, y, y, n, s.m.Hidden)
		s.norm(l.Beside.RouterNorm, x, s.room(&s.scratch.normed, wide), n, s.m.Hidden)
		c := s.choose(l, s.on(&s.scratch.normed), n)
		s.norm(l.Beside.ExpertNorm, x, s.on(&s.scratch.normed), n, s.m.Hidden)
		sum := s.room(&s.mixing.sum, wide)
		c.join(c.experts(l, s.on(&s.scratch.normed)), joined{y: sum, scale: 1, width: s.m.Hidden})
		s.normInto(l.Beside.ExpertPost, sum, y, n, s.m.Hidden, 1, normAdd)
		s.addRows(l, y, x, n)
	case s.m.Layer[layer].MoE:
		s.mixture(l, in, x, n)
	default:
		s.alone(l, in, x, n)
	}
}

// mixture adds to x what experts and the network beside them make of the rows of in.
func (s *steps) mixture(l *model.LayerParams, in, x span, n int) {
	c, d := s.choose(l, in, n), s.m.Hidden
	j := joined{y: x, scale: orOne(s.m.ResidualScale), width: d, flags: joinAdd}
	if !l.PostFFNNorm.W.Absent() {
		j = joined{y: s.room(&s.mixing.sum, n*d), scale: 1, width: d}
	}
	given := in
	if !l.ExpertIn.Absent() {
		given = s.room(&s.mixing.low, n*l.ExpertIn.Rows)
		s.besides(func() { s.product(l.ExpertIn, in, given, n, 1, 0) })
	}
	parts := c.experts(l, given)
	if !l.SharedUp.Absent() {
		j.beside = s.room(&s.mixing.beside, n*d)
		s.dense(l.SharedGate, l.SharedUp, l.SharedDown, in, j.beside, n)
		if !l.SharedRouter.Absent() {
			j.gate = s.room(&s.mixing.doors, n)
			s.besides(func() { s.product(l.SharedRouter, in, j.gate, n, 1, 0) })
		}
	}
	if !l.ExpertIn.Absent() {
		low := s.room(&s.mixing.low, n*l.ExpertIn.Rows)
		c.join(parts, joined{y: low, scale: 1, width: l.ExpertIn.Rows})
		flags := 0
		if j.flags != 0 {
			flags = addTo
		}
		s.product(l.ExpertOut, low, j.y, n, j.scale, flags)
		parts, j.flags = span{}, joinAdd
	}
	c.join(parts, j)
	if !l.PostFFNNorm.W.Absent() {
		s.normInto(l.PostFFNNorm, s.on(&s.mixing.sum), x, n, d, orOne(s.m.ResidualScale), normAdd)
	}
}

// addRows adds rows y to the residual x, normed where the layer has such a norm.
func (s *steps) addRows(l *model.LayerParams, y, x span, n int) {
	if !l.PostFFNNorm.W.Absent() {
		s.normInto(l.PostFFNNorm, y, x, n, s.m.Hidden, orOne(s.m.ResidualScale), normAdd)
		return
	}
	c := &choice{steps: s, n: n}
	c.join(span{}, joined{y: x, beside: y, scale: orOne(s.m.ResidualScale), width: s.m.Hidden, flags: joinAdd})
}

// scale multiplies rows x by a layer's factor, if it has one.
func (s *steps) scale(factor *model.Vector, x span, n int) {
	f, err := factor.Values()
	if s.keep(err); err != nil || f == nil {
		return
	}
	c := &choice{steps: s, n: n}
	c.join(span{}, joined{y: x, beside: x, scale: f[0], width: s.m.Hidden})
}

// choice is which experts rows have: pairs of a row and an expert, row by row, and work groups of pairs that share an expert.
type choice struct {
	*steps
	n, pairs int
	size     int // pairs of a work group at most
	tasks    int
}

// choose has a router choose the experts of n rows.
func (s *steps) choose(l *model.LayerParams, in span, n int) *choice {
	m, r := s.m, &s.m.Router
	c := &choice{steps: s, n: n, pairs: n * m.TopK}
	c.size = s.tall(groupsOf(c.pairs, m.Experts))
	c.tasks = min(c.pairs, c.pairs/c.size+m.Experts)
	logits := s.room(&s.mixing.router, n*m.Experts)
	s.product(l.Router, in, logits, n, 1, 0)
	chosen, share := s.room(&s.mixing.chosen, c.pairs), s.room(&s.mixing.share, c.pairs)
	tasks, pairs := s.room(&s.mixing.tasks, 3*c.tasks), s.room(&s.mixing.pairs, c.pairs)
	bias, factors, flags := s.vector(l.RouterBias), s.vector(l.ExpertScale), 0
	if !bias.absent() {
		flags |= chooseBias
	}
	if !factors.absent() {
		flags |= chooseFactors
	}
	if m.NormTopK {
		flags |= chooseNorm
	}
	gx, gy := s.grid(n)
	s.run("experts", push{}.at(logits).at(bias).at(factors).at(chosen).at(share).at(tasks).at(pairs).int(n).int(m.TopK).int(flags).float(orOne(r.Scale)).
		float(r.Least).float(r.Softcap).float(r.Jitter).int(r.Groups).int(r.GroupsUsed).int(r.GroupBest), gx, gy, 1, uint32(m.Experts), uint32(r.Score))
	if n > 1 {
		s.run("group", push{}.at(chosen).at(tasks).at(pairs).int(c.pairs).int(c.tasks), 1, 1, 1, uint32(m.Experts), uint32(c.size))
	}
	return c
}

// tall is how many rows a work group of products takes, where about so many are there for it.
func (s *steps) tall(rows int) int {
	at, most := 1, 8
	if s.p.Phase != kernels.Decode {
		at, most = 16, 64
	}
	for at < rows && at < most {
		at *= 2
	}
	return at
}

// experts is what the experts of each pair make of its row of given: [pairs, ExpertRow].
func (c *choice) experts(l *model.LayerParams, given span) span {
	m := c.m
	flags := 0
	if m.Router.OnInput {
		flags = weighed
	}
	width := l.ExpertUp[0].Rows
	gate := c.room(&c.scratch.gate, c.pairs*width)
	if len(l.ExpertGate) == 0 {
		c.product(l.ExpertUp, given, gate, m.TopK, flags)
		c.activate(uint32(m.Act), gate, span{}, gate, c.pairs*width, 0)
	} else {
		up := c.room(&c.scratch.up, c.pairs*width)
		c.product(l.ExpertGate, given, gate, m.TopK, flags)
		c.besides(func() { c.product(l.ExpertUp, given, up, m.TopK, flags) })
		c.activate(uint32(m.Act), gate, up, gate, c.pairs*width, m.Clamp.Limit)
	}
	parts := c.room(&c.mixing.parts, c.pairs*l.ExpertDown[0].Rows)
	c.product(l.ExpertDown, gate, parts, 1, 0)
	return parts
}

// product is y [pairs, rows] = W·x + bias of each pair's expert; a row of x belongs to each so many pairs.
func (c *choice) product(list []*model.Linear, x, y span, each, flags int) {
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
