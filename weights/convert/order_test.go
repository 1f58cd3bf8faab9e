package convert

import "testing"

// TestInterleave: the pairs (i, i+rot/2) of each head's first rot rows become neighbours, every row is written once, and rows
// that don't rotate stay.
func TestInterleave(t *testing.T) {
	for _, c := range []struct{ dim, rot int }{{8, 8}, {8, 4}, {64, 16}, {6, 0}, {2, 2}} {
		order, seen := interleave(c.dim, c.rot), map[int]bool{}
		for row := range 3 * c.dim {
			from := order(row)
			head, in := row/c.dim*c.dim, row%c.dim
			want := row
			if in < c.rot {
				want = head + in/2 // the first of a pair
				if in%2 == 1 {
					want += c.rot / 2
				}
			}
			if from != want || seen[from] {
				t.Errorf("dim %d, %d rotate: row %d holds %d, want %d (once)", c.dim, c.rot, row, from, want)
			}
			seen[from] = true
		}
	}
}
