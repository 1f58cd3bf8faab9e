package contexts

import (
	"encoding/binary"
	"fmt"
)

// RanksVersion is the version of ranks that is written and read (Meta.Ranks). They lie behind the directory, in section 0: for each
// layer and KV head, in order, u32 0 where its tokens have no ranks, or u32 1 and a u32 for each of its main tokens, in order: the
// token's place in the order by which the policy chose from the whole context, from 0, below the positions of the context times
// layers and KV heads. With them a context is made smaller without its model and without what was dropped.
const RanksVersion = 1

// AppendRanks appends the ranks of heads behind their directory.
func AppendRanks(b []byte, heads []Head) []byte {
	le := binary.LittleEndian
	for _, h := range heads {
		if h.Ranks == nil {
			b = le.AppendUint32(b, 0)
			continue
		}
		b = le.AppendUint32(b, 1)
		for _, r := range h.Ranks {
			b = le.AppendUint32(b, r)
		}
	}
	return b
}

// parseRanks fills the ranks of heads of a record that stands for positions below end. That they are an order shows with all parts.
func parseRanks(b []byte, heads []Head, end int) error {
	bad := func(i int, what string) error {
		return fmt.Errorf("contexts: ranks, layer and head %d: %s: %w", i, what, ErrDamaged)
	}
	le, below := binary.LittleEndian, uint64(end)*uint64(len(heads))
	for i := range heads {
		if len(b) < 4 {
			return bad(i, "they end")
		}
		known := le.Uint32(b)
		if b = b[4:]; known == 0 {
			continue
		}
		n := len(heads[i].Main)
		if known != 1 || 4*n > len(b) || len(heads[i].Recent) > 0 {
			return bad(i, "numbers out of range")
		}
		ranks := make([]uint32, n)
		for at := range ranks {
			ranks[at] = le.Uint32(b[4*at:])
			if uint64(ranks[at]) >= below {
				return bad(i, "a rank out of range")
			}
		}
		heads[i].Ranks, b = ranks, b[4*n:]
	}
	if len(b) != 0 {
		return bad(len(heads), "bytes are left")
	}
	return nil
}
