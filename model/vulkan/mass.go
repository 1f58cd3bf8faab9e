package vulkan

// massBytes bounds the weights of rows that come down at a time.
const massBytes = 32 << 20

// mass adds the weights of the sequence's rows to its ColumnSums, or stores them row by row.
func (a *attending) mass(pos, stats span) error {
	c, p, n := a.s.ColumnSums, &a.params, len(a.s.Pos)
	for _, row := range c.Rows {
		clear(row)
	}
	if a.most == 0 {
		return nil
	}
	block, flags := n, 0
	if c.Rows != nil {
		block, flags = max(1, massBytes/(4*p.Heads*a.most)), 4
	}
	for from := c.FromRow; from < n; from += block {
		rows := min(block, n-from)
		size := p.Heads * a.most
		if c.Rows != nil {
			size *= rows
		}
		y := a.room(&a.scratch.weightsOf, size)
		a.run("mass", push{}.at(a.q.from(4*from*p.Heads*p.KeyDim)).at(y).at(a.m.table).at(a.picks).at(a.counts).at(pos.from(4*from)).at(span{}).
			at(stats.from(8*from*p.Heads)).int(p.Heads).int(p.Heads/p.KVHeads).int(rows).int(a.m.room).int(p.Window).int(a.most).int(flags).
			float(p.Scale).float(p.Softcap), groupsOf(a.most, 64), p.Heads, 1, elemCode(a.m.elem), uint32(p.KeyDim), uint32(p.ValueDim))
		if _, err := a.result(&a.scratch.weightsOf, size, 1, true); err != nil {
			return err
		}
		got, err := a.scratch.weightsOf.h.now()
		if err != nil {
			return err
		}
		a.add(got, from, rows)
	}
	return nil
}

// add hands weights [heads, columns], or [rows, heads, columns] of the rows from a number on, to who wants them.
func (a *attending) add(got []float32, from, rows int) {
	c, p := a.s.ColumnSums, &a.params
	each := 1
	if c.Rows != nil {
		each = rows
	}
	for g := range p.KVHeads {
		numbers := a.m.numbers(g)
		if a.list[g] != nil {
			numbers = numbers[:0]
			for _, token := range a.list[g] {
				numbers = append(numbers, int(token))
			}
		}
		total := a.s.Views[g].Tokens()
		for column, token := range numbers {
			if token < 0 {
				continue
			}
			for head := g * p.Heads / p.KVHeads; head < (g+1)*p.Heads/p.KVHeads; head++ {
				for r := range each {
					w := got[(r*p.Heads+head)*a.most+column]
					if c.Rows != nil {
						c.Rows[head][(from+r-c.FromRow)*total+token] = w
					}
					if c.Sum != nil && c.Sum[head] != nil {
						c.Sum[head][token] += w
					}
				}
			}
		}
	}
}
