package model

// RotaryRows gives cos and sin of a layer's rotary embedding for each row of a pass, for backends that rotate by their own
// means. It keeps the tables it has computed; one goroutine at a time.
type RotaryRows struct {
	c      *Config
	tables map[[2]int]*ropeTable
}

// NewRotaryRows returns the rotations of a model's layers.
func NewRotaryRows(c *Config) *RotaryRows {
	return &RotaryRows{c: c, tables: map[[2]int]*ropeTable{}}
}

// Layer returns the rotary embedding of a layer, nil where it has none.
func (r *RotaryRows) Layer(layer int) *Rope {
	index := r.c.Layer[layer].Rope
	if index < 0 || index >= len(r.c.Ropes) {
		return nil
	}
	return &r.c.Ropes[index]
}

// Row returns cos and sin, [Dim/2] each, for a row of the pass; the layer must have a rotary embedding. The slices are the
// table's: they are read only.
func (r *RotaryRows) Row(p *Pass, layer, row int) (cos, sin []float32) {
	index := r.c.Layer[layer].Rope
	rope, pos := &r.c.Ropes[index], int(p.Pos[row])
	length := pos + 1
	if p.Len != nil {
		length = int(p.Len[row])
	}
	switch {
	case rope.LongFreq != nil && length > rope.LongAt:
		length = rope.LongAt + 1
	case rope.LongFreq != nil || rope.DynamicBase == 0 || length <= rope.DynamicAt:
		length = 0
	}
	key := [2]int{index, length}
	if r.tables[key] == nil {
		if len(r.tables) > 64+len(r.c.Ropes) {
			clear(r.tables)
		}
		r.tables[key] = &ropeTable{rope: rope, length: length}
	}
	return r.tables[key].row(pos)
}
