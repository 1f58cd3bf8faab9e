package kernels

// actBytes is the size of one row's share of an activation record: 32 int8 values and 5 fields of 4 bytes.
const actBytes = recordCols + 5*4

// activations are rows quantised for the integer kernels, in groups of rows that a kernel takes together. A group of T
// rows is a row of records of 32 columns, each T*32 int8 values (row by row), then T times each of
//
//	dx   float32  max|x|/127, the scale of the 32 values
//	dxs  float32  dx times the sum of the int8 values (what minima multiply)
//	-s   int32    minus that sum, and minus the sums of columns 0..15 and of 16..31 (what biased weights need)
//
// A row's values do not depend on its group, so neither do its results (invariant 1).
type activations struct {
	buf     []byte
	groups  []actGroup
	records int
}

type actGroup struct{ first, rows int }

// plan cuts n rows into groups of sizes from the falling list and makes room for them.
func (a *activations) plan(n, cols int, sizes []dotKernel) {
	a.records = cols / recordCols
	a.groups = a.groups[:0]
	first := 0
	for _, s := range sizes {
		for n-first >= s.rows {
			a.groups = append(a.groups, actGroup{first, s.rows})
			first += s.rows
		}
	}
	if need := n * a.records * actBytes; len(a.buf) < need {
		a.buf = make([]byte, need)
	}
}

// at is the start of a group's records.
func (a *activations) at(g actGroup) *byte { return &a.buf[g.first*a.records*actBytes] }

// quantizeGroup fills one group from x [n, cols].
func (a *activations) quantizeGroup(m *machine, g actGroup, x []float32) {
	cols := a.records * recordCols
	if g.rows == 16 && m.group != nil {
		m.group(a.at(g), &x[g.first*cols], uintptr(cols)*4, a.records)
		return
	}
	for t := range g.rows {
		row := x[(g.first+t)*cols : (g.first+t+1)*cols]
		m.quantize(a.at(g), g.rows, t, &row[0], a.records)
	}
}
