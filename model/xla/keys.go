package xla

import (
	"sort"

	"terrace/attention"
)

// keys are what the rows of one sequence attend to: a large block, of which only picks [G, S] with the positions picked
// [G, S] are read where given, and a tail.
type keys struct {
	b             *backend
	layer         int
	large, tail   block
	picks, picked operand
	tailPos       operand // the tail's positions, noKey for what was not picked
	own           []operand
	m             *mirror // whose blocks these are; nil: they are own
	index         [][]keyAt
	total         []int // a KV head: tokens of the view, picked or not
}

// keyAt is a token: its number in the view's order and its column of the weights.
type keyAt struct{ number, column int32 }

func (k *keys) free() {
	for i := range k.own {
		k.own[i].free()
	}
	if k.m != nil {
		k.b.release(k.m)
	}
}

// slots is the number of columns.
func (k *keys) slots() int {
	n := k.large.slots()
	if !k.picks.absent() {
		n = k.picks.shape.Dim(1)
	}
	return n + k.tail.slots()
}

// limit is how many columns of the large block the rows before row to can see: those of newer tokens are at the end.
func (k *keys) limit(s *attention.Seq, to int) int {
	columns := k.slots() - k.tail.slots()
	if k.m == nil || !k.tail.absent() || !k.picks.absent() {
		return columns
	}
	seen := 1
	for g := range s.Views {
		v := &s.Views[g]
		seen = max(seen, sort.Search(k.total[g], func(i int) bool { return positionOf(v, i) > s.Pos[to-1] }))
	}
	return min(columns, tokenBucket(seen))
}

// keys brings to the device what a sequence's rows attend to: the mirror of its views, or, where there is no room for one
// and only some tokens are picked or nobody says what pages hold, these tokens for this call.
func (b *backend) keys(layer int, s *attention.Seq, at int) (*keys, error) {
	k := &keys{b: b, layer: layer, total: make([]int, len(s.Views))}
	for g := range s.Views {
		k.total[g] = s.Views[g].Tokens()
	}
	if !known(s.Views) || s.Select != nil && !b.stays(layer, s) {
		return k, k.upload(s)
	}
	m, err := b.sync(layer, s, at)
	if err != nil {
		return nil, err
	}
	k.m, k.large, k.tail, k.tailPos = m, m.large, m.tail, m.tail.pos
	if s.Select != nil {
		err = k.pick(s)
	} else if s.ColumnSums != nil {
		k.indexAll()
	}
	if err != nil {
		k.free()
	}
	return k, err
}

// stays reports whether a sequence's mirror of a layer is kept, or would be.
func (b *backend) stays(layer int, s *attention.Seq) bool {
	if b.mirrors[mirrorKey{s.Views[0].Cache, layer}] != nil {
		return true
	}
	most := 0
	for g := range s.Views {
		most = max(most, s.Views[g].Tokens())
	}
	return b.room(3 * b.blockBytes(layer, tokenBucket(most)))
}

// upload takes the picked tokens to the device for this call.
func (k *keys) upload(s *attention.Seq) error {
	b, most := k.b, 1
	if err := await(s); err != nil {
		return err
	}
	k.index = make([][]keyAt, len(s.Views))
	for g := range s.Views {
		n := k.total[g]
		if s.Select != nil && s.Select[g] != nil {
			n = len(s.Select[g])
		}
		for i := range n {
			number := int32(i)
			if s.Select != nil && s.Select[g] != nil {
				number = s.Select[g][i]
			}
			k.index[g] = append(k.index[g], keyAt{number, int32(i)})
		}
		most = max(most, n)
	}
	up, err := b.uploadRows(k.layer, b.gatherPicks(k.layer, s.Views, s.Select, tokenBucket(most)))
	k.own = []operand{up.k, up.v, up.pos}
	k.large = block{up.k, up.v, up.pos}
	return err
}

// indexAll lists all tokens: those of the large block first, then the tail's.
func (k *keys) indexAll() {
	k.index = make([][]keyAt, len(k.total))
	for g, n := range k.total {
		k.index[g] = make([]keyAt, n)
		large := n - k.m.tailed
		for i := range n {
			k.index[g][i] = keyAt{int32(i), int32(i)}
			if i >= large {
				k.index[g][i].column = int32(k.large.slots() + i - large)
			}
		}
	}
}

// pick restricts the mirror to the selected tokens: their slots go up, their keys and values are there.
func (k *keys) pick(s *attention.Seq) error {
	heads, most := len(s.Views), 1
	large := make([]int, heads) // tokens of the large block
	for g := range heads {
		large[g] = k.total[g] - k.m.tailed
		n := large[g]
		if s.Select[g] != nil {
			n = len(s.Select[g])
		}
		most = max(most, n)
	}
	width := tokenBucket(most)
	picks, picked, late := make([]int32, heads*width), fillUp(nil, heads*width, noKey), fillUp(nil, heads*k.tail.slots(), noKey)
	k.index = make([][]keyAt, heads)
	for g := range heads {
		n := 0
		each := func(number int) {
			pos, column := positionOf(&s.Views[g], number), 0
			if number < large[g] {
				picks[g*width+n], picked[g*width+n], column = int32(number), pos, n
				n++
			} else {
				late[g*k.tail.slots()+number-large[g]], column = pos, width+number-large[g]
			}
			k.index[g] = append(k.index[g], keyAt{int32(number), int32(column)})
		}
		if s.Select[g] == nil {
			for i := range k.total[g] {
				each(i)
			}
		}
		for _, i := range s.Select[g] {
			each(int(i))
		}
	}
	for _, up := range []struct {
		to    *operand
		x     []int32
		width int
	}{{&k.picks, picks, width}, {&k.picked, picked, width}, {&k.tailPos, late, k.tail.slots()}} {
		if up.width == 0 {
			continue
		}
		o, err := uploadCounted(k.b.device, "picks", k.layer, up.x, heads, up.width)
		if err != nil {
			return err
		}
		*up.to = o
		k.own = append(k.own, o)
	}
	return nil
}

// positionOf is the position of a token of a view whose pages are all in Pages.
func positionOf(v *attention.View, i int) int32 {
	return v.Pages[i/v.Layout.Tokens].Pos[i%v.Layout.Tokens]
}

// sumMass adds summed weights [G, group, columns]; a token beyond them was not seen.
func (k *keys) sumMass(p *attention.Params, m *attention.ColumnSums, weights []float32, columns int) {
	group := p.Heads / p.KVHeads
	for head := range p.Heads {
		if m.Sum == nil || m.Sum[head] == nil {
			continue
		}
		row := weights[head*columns:]
		for _, t := range k.index[head/group] {
			if int(t.column) < columns {
				m.Sum[head][t.number] += row[t.column]
			}
		}
	}
}

// eachMass hands the weights [G, rows, group, columns] of rows [from, to) on, row by row.
func (k *keys) eachMass(p *attention.Params, m *attention.ColumnSums, weights []float32, from, to, rows, columns int) {
	group := p.Heads / p.KVHeads
	for head := range p.Heads {
		g := head / group
		for r := max(from, m.FromRow); r < to; r++ {
			row := weights[((g*rows+r-from)*group+head%group)*columns:]
			for _, t := range k.index[g] {
				if int(t.column) >= columns {
					continue
				}
				m.Rows[head][(r-m.FromRow)*k.total[g]+int(t.number)] = row[t.column]
				if m.Sum != nil && m.Sum[head] != nil {
					m.Sum[head][t.number] += row[t.column]
				}
			}
		}
	}
}
