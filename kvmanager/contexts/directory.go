package contexts

import (
	"encoding/binary"
	"fmt"
)

// Head is what a record has of one layer and KV head: positions of the tokens in the main pages and of those in a quantised
// cache's window, both ascending.
type Head struct {
	Main, Recent []int32
	// Ranks are the places of Main in the order by which a policy chose them from the whole context, 0 the last to go; nil = the policy
	// dropped nothing here, or they are not known.
	Ranks []uint32
}

// AppendDirectory appends a record's first section: for each layer and KV head, in order, u32 main tokens, u32 window tokens, u32
// runs, and each run of positions as u32 first, u32 length.
func AppendDirectory(b []byte, heads []Head) []byte {
	le := binary.LittleEndian
	for _, h := range heads {
		b = le.AppendUint32(le.AppendUint32(b, uint32(len(h.Main))), uint32(len(h.Recent)))
		at := len(b)
		b = le.AppendUint32(b, 0)
		runs, last := uint32(0), int32(-2)
		for _, list := range [...][]int32{h.Main, h.Recent} {
			for _, p := range list {
				if runs == 0 || p != last+1 {
					b = le.AppendUint32(le.AppendUint32(b, uint32(p)), 0)
					runs++
				}
				n := b[len(b)-4:]
				le.PutUint32(n, le.Uint32(n)+1)
				last = p
			}
		}
		le.PutUint32(b[at:], runs)
	}
	return b
}

// ParseDirectory reads one of a record that stands for positions below end, in count layers and KV heads with at most most tokens
// each, with its ranks (Meta.Ranks). Errors wrap ErrDamaged.
func ParseDirectory(b []byte, count, most, end int, ranks uint32) ([]Head, error) {
	bad := func(i int, what string) ([]Head, error) {
		return nil, fmt.Errorf("contexts: directory, layer and head %d: %s: %w", i, what, ErrDamaged)
	}
	le, heads := binary.LittleEndian, make([]Head, 0, count)
	for i := range count {
		if len(b) < 12 {
			return bad(i, "it ends")
		}
		main, recent, runs := int(le.Uint32(b)), int(le.Uint32(b[4:])), int(le.Uint32(b[8:]))
		b = b[12:]
		if main > most || recent > most || runs > main+recent || 8*runs > len(b) {
			return bad(i, "numbers out of range")
		}
		pos, last := make([]int32, 0, main+recent), -1
		for range runs {
			first, n := int(le.Uint32(b)), int(le.Uint32(b[4:]))
			b = b[8:]
			if first <= last || n < 1 || n > main+recent-len(pos) || first > end-n {
				return bad(i, "positions out of order")
			}
			for p := first; p < first+n; p++ {
				pos = append(pos, int32(p))
			}
			last = first + n - 1
		}
		if len(pos) != main+recent {
			return bad(i, "positions are missing")
		}
		heads = append(heads, Head{Main: pos[:main:main], Recent: pos[main:]})
	}
	if ranks == RanksVersion {
		return heads, parseRanks(b, heads, end)
	}
	if len(b) != 0 {
		return bad(count, "bytes are left")
	}
	return heads, nil
}
