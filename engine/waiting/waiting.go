// Package waiting keeps hidden rows that left a prompt on their way through the layers (SlimInfer, LazyLLM), until a decode step
// wants them back. It never computes with them.
//
// Units: rows of width float32, named by position. They are charged to the budget of the KV cache, 4·width bytes each, from
// Keep until they have come back for good (PassOn) or Free. A Rows belongs to one session and is not safe for concurrent use.
package waiting

import (
	"fmt"
	"slices"
)

// Budget is what memory is charged to (kvmanager.Manager).
type Budget interface {
	Charge(bytes int64) error
	Refund(bytes int64)
}

// Rows are those that left at one layer.
type Rows struct {
	budget  Budget
	width   int
	rows    map[int32][]float32
	charged int64
}

// New returns none, of a width.
func New(budget Budget, width int) *Rows {
	return &Rows{budget: budget, width: width, rows: map[int32][]float32{}}
}

// Keep copies n rows; at gives them and their positions. Where there is no room for them (the budget's error) none is kept.
func (r *Rows) Keep(n int, at func(i int) (pos int32, row []float32)) error {
	bytes := int64(n) * r.rowBytes()
	if err := r.budget.Charge(bytes); err != nil {
		return fmt.Errorf("%d hidden rows that may come back take %d bytes (none with revive=none): %w", n, bytes, err)
	}
	r.charged += bytes
	for i := range n {
		pos, row := at(i)
		r.rows[pos] = slices.Clone(row)
	}
	return nil
}

func (r *Rows) rowBytes() int64 { return int64(4 * r.width) }

// Take moves the rows of wanted positions out, one after another in the order of want; positions without one are not in the
// result. Their charge stays until PassOn.
func (r *Rows) Take(want []int32) (pos []int32, rows []float32) {
	for _, p := range want {
		if row, ok := r.rows[p]; ok {
			pos, rows = append(pos, p), append(rows, row...)
			delete(r.rows, p)
		}
	}
	return pos, rows
}

// PassOn hands rows that were taken, as they are now, on to a later layer's with their charge; nil = they have come back for good.
func (r *Rows) PassOn(next *Rows, pos []int32, rows []float32) {
	bytes := int64(len(pos)) * r.rowBytes()
	r.charged -= bytes
	if next == nil {
		r.budget.Refund(bytes)
		return
	}
	next.charged += bytes
	for i, p := range pos {
		next.rows[p] = slices.Clone(rows[i*r.width : (i+1)*r.width])
	}
}

// Bytes is what is charged; nil has nothing.
func (r *Rows) Bytes() int64 {
	if r == nil {
		return 0
	}
	return r.charged
}

// Free forgets all rows and gives their charge back.
func (r *Rows) Free() {
	r.budget.Refund(r.charged)
	r.charged = 0
	clear(r.rows)
}
