package xla

import (
	"slices"

	"terrace/model"
)

// passOperands are what all layers of a pass share: uploaded once, kept until a pass has other rows.
type passOperands struct {
	pos, length []int32
	positions   operand            // [bucket], noRow where there is no row
	numbers     map[[2]int]operand // scalars that programs take
	turns       map[int][2]operand // by rope: cos and sin [bucket, dim/2]
}

// pass brings the shared operands in line with the rows of a pass.
func (b *backend) pass(p *model.Pass) *passOperands {
	s := &b.shared
	if !slices.Equal(s.pos, p.Pos) || !slices.Equal(s.length, p.Len) {
		s.free()
		s.pos, s.length = append(s.pos[:0], p.Pos...), append(s.length[:0], p.Len...)
	}
	return s
}

func (s *passOperands) free() {
	s.positions.free()
	for x, o := range s.numbers {
		o.free()
		delete(s.numbers, x)
	}
	for i, t := range s.turns {
		t[0].free()
		t[1].free()
		delete(s.turns, i)
	}
}

// positions adds the positions of the pass's rows, [bucket].
func (c *call) positions(p *model.Pass) {
	s := c.b.pass(p)
	if s.positions.absent() {
		var err error
		if s.positions, err = uploadCounted(c.b.device, "inputs", -1, c.padded(p.Pos, noRow), c.bucket); err != nil {
			c.add(operand{}, err)
			return
		}
	}
	c.add(s.positions, nil)
}

// scalars adds one or two numbers that depend on the pass, [2]: they go up once for all layers.
func (c *call) scalars(x ...int) {
	s, key := &c.b.shared, [2]int{}
	copy(key[:], x)
	o, ok := s.numbers[key]
	if !ok {
		var err error
		if o, err = uploadCounted(c.b.device, "inputs", -1, []int32{int32(key[0]), int32(key[1])}, 2); err != nil {
			c.add(operand{}, err)
			return
		}
		if s.numbers == nil {
			s.numbers = map[[2]int]operand{}
		}
		s.numbers[key] = o
	}
	c.add(o, nil)
}

// angles adds cos and sin of the pass's rows, [bucket, dim/2] each, absent where the layer does not rotate.
func (c *call) angles(p *model.Pass, layer int) (interlaced bool) {
	rope := c.b.rotary.Layer(layer)
	if rope == nil {
		c.none()
		c.none()
		return false
	}
	s, index := c.b.pass(p), c.b.m.Layer[layer].Rope
	turn, ok := s.turns[index]
	if !ok {
		pairs := rope.Dim / 2
		cos, sin := make([]float32, c.bucket*pairs), make([]float32, c.bucket*pairs)
		for r := range p.Pos {
			rc, rs := c.b.rotary.Row(p, layer, r)
			copy(cos[r*pairs:], rc)
			copy(sin[r*pairs:], rs)
		}
		var err error
		if turn[0], err = uploadCounted(c.b.device, "inputs", -1, cos, c.bucket, pairs); err == nil {
			turn[1], err = uploadCounted(c.b.device, "inputs", -1, sin, c.bucket, pairs)
		}
		if err != nil {
			c.add(operand{}, err)
			c.none()
			return false
		}
		if s.turns == nil {
			s.turns = map[int][2]operand{}
		}
		s.turns[index] = turn
	}
	c.add(turn[0], nil)
	c.add(turn[1], nil)
	return rope.Interlaced
}
