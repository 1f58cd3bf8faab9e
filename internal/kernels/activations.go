package kernels

// actBytes is the size of one row's share of an activation record: 32 int8 values and 5 fields of 4 bytes.
const actBytes = recordCols + 5*4

// activations are rows quantised for the integer kernels, in groups of rows that a kernel takes together. A group of T
// rows is a row of records of 32 columns, each T*32 int8 values (row by row; for SMMLA 8 columns of each row at a time, by
// its own quantize), then T times each of
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

// maxGroup is the largest group of any kernel.
const maxGroup = 16

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

// span is records [from, to) of a group.
func (a *activations) span(g actGroup, from, to int) []byte {
	return a.buf[(g.first*a.records+from*g.rows)*actBytes:][:(to-from)*g.rows*actBytes]
}

// quantizeGroup fills records [from, to) of one group from x, whose rows are stride numbers apart and start at column
// from.
func (a *activations) quantizeGroup(m *machine, g actGroup, x []float32, stride, from, to int) {
	act := &a.span(g, from, to)[0]
	if g.rows == 16 && m.group != nil {
		m.group(act, &x[0], uintptr(stride)*4, to-from)
		return
	}
	for t := range g.rows {
		m.quantize(act, g.rows, t, &x[t*stride], to-from)
	}
}

// quantizeRecord fills one record of a group from x [g.rows, 32].
func (a *activations) quantizeRecord(m *machine, g actGroup, record int, x []float32) {
	a.quantizeGroup(m, g, x, recordCols, record, record+1)
}
