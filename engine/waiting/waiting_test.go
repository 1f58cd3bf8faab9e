package waiting

import (
	"errors"
	"slices"
	"testing"
)

// purse is a budget of so many bytes.
type purse struct{ left int64 }

var errPurse = errors.New("empty")

func (p *purse) Charge(n int64) error {
	if n > p.left {
		return errPurse
	}
	p.left -= n
	return nil
}

func (p *purse) Refund(n int64) { p.left += n }

// TestRowsAreCharged: rows cost 4·width bytes each from Keep until they are back for good, wherever they wait meanwhile.
func TestRowsAreCharged(t *testing.T) {
	const width = 3
	p := &purse{left: 5 * 4 * width}
	first, second := New(p, width), New(p, width)
	row := func(i int) (int32, []float32) { return int32(10 * i), []float32{float32(i), 1, 2} }
	if err := first.Keep(6, row); !errors.Is(err, errPurse) || first.Bytes() != 0 || p.left != 60 {
		t.Fatalf("six rows: %v, %d bytes charged", err, first.Bytes())
	}
	if err := first.Keep(5, row); err != nil || p.left != 0 {
		t.Fatalf("five rows: %v, %d bytes left", err, p.left)
	}
	pos, rows := first.Take([]int32{5, 10, 30, 31})
	if !slices.Equal(pos, []int32{10, 30}) || !slices.Equal(rows, []float32{1, 1, 2, 3, 1, 2}) || p.left != 0 {
		t.Fatalf("took %v of %v, %d bytes left", rows, pos, p.left)
	}
	rows[0] = 7 // as the layers between leave them
	first.PassOn(second, pos, rows)
	if first.Bytes() != 36 || second.Bytes() != 24 || p.left != 0 {
		t.Fatalf("%d and %d bytes, %d left", first.Bytes(), second.Bytes(), p.left)
	}
	rows[3] = 9 // is the caller's again
	if pos, rows = second.Take([]int32{10, 30}); !slices.Equal(rows, []float32{7, 1, 2, 3, 1, 2}) {
		t.Fatalf("the later layer has %v of %v", rows, pos)
	}
	second.PassOn(nil, pos, rows)
	if pos, _ := first.Take([]int32{10, 30}); len(pos) != 0 || second.Bytes() != 0 || p.left != 24 {
		t.Fatalf("%v came back twice, %d bytes left", pos, p.left)
	}
	first.Free()
	first.Free()
	if p.left != 60 {
		t.Errorf("%d bytes left at the end", p.left)
	}
}
