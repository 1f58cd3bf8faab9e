package convert

import (
	"fmt"
	"regexp"
	"strconv"

	"terrace/weights/gguf"
)

// layoutKey says that q and k rows are in memory order (pairs i, i+d/2) in an architecture whose GGUF files have them
// interleaved (pairs 2i, 2i+1).
const layoutKey = "terrace.rope.layout"

// rowOrder maps a row of the written tensor to the row of the source that it holds; nil = as they are.
type rowOrder func(row int) int

var rotated = regexp.MustCompile(`^blk\.(\d+)\.attn_(q|k)\.(weight|bias)$`)

// interleave returns the order in which the rows of heads of dim rows are written so that rotary pairs are neighbours. Only
// the first rot rows of a head rotate; the others stay.
func interleave(dim, rot int) rowOrder {
	return func(row int) int {
		in := row % dim
		if in >= rot {
			return row
		}
		return row - in + in%2*(rot/2) + in/2
	}
}

// ordersFor returns the row order of each tensor. Only models with the layout key need one.
func ordersFor(meta *gguf.Meta, tensors []*gguf.Tensor) ([]rowOrder, error) {
	orders := make([]rowOrder, len(tensors))
	if !meta.Has(layoutKey) {
		return orders, nil
	}
	layout, err := meta.String(layoutKey)
	if err != nil || layout != "neox" {
		return nil, fmt.Errorf("convert: %s is %q, want neox: %w", layoutKey, layout, gguf.ErrFormat)
	}
	arch, err := meta.String("general.architecture")
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	keys := map[string]string{"q": arch + ".attention.head_count", "k": arch + ".attention.head_count_kv"}
	for i, t := range tensors {
		m := rotated.FindStringSubmatch(t.Name)
		if m == nil {
			continue
		}
		n, err := ofLayer(meta, keys[m[2]], m[1])
		if err != nil {
			return nil, fmt.Errorf("convert: %w", err)
		}
		rows := t.Shape[0]
		if n < 1 || rows%(2*n) != 0 {
			return nil, fmt.Errorf("convert: tensor %q: %d rows are not %d heads of even width: %w", t.Name, rows, n, gguf.ErrFormat)
		}
		rot := rows / n
		if meta.Has(arch + ".rope.dimension_count") {
			if rot, err = meta.Int(arch + ".rope.dimension_count"); err != nil || rot < 0 || rot > rows/n || rot%2 != 0 {
				return nil, fmt.Errorf("convert: %s.rope.dimension_count is %d, want an even number up to the head's %d: %w", arch, rot, rows/n, gguf.ErrFormat)
			}
		}
		orders[i] = interleave(rows/n, rot)
	}
	return orders, nil
}

// ofLayer is a number that all layers share, or that each has its own of.
func ofLayer(meta *gguf.Meta, key, layer string) (int, error) {
	each, err := meta.Ints(key)
	if err != nil {
		return meta.Int(key)
	}
	at, err := strconv.Atoi(layer)
	if err != nil || at >= len(each) {
		return 0, fmt.Errorf("%s has %d numbers, none of layer %s: %w", key, len(each), layer, gguf.ErrFormat)
	}
	return each[at], nil
}
