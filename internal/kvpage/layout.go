package kvpage

import (
	"fmt"

	"terrace/internal/cacheshape"
)

// Tile is the number of tokens of a K tile.
const Tile = 16

// valueGroup is the number of dimensions of a token's value that share a scale.
const valueGroup = 64

const maxDim = 1 << 14
const maxTokens = 1 << 16

// Layout says what a page holds.
type Layout struct {
	K, V             Elem
	KeyDim, ValueDim int // numbers a token
	Tokens           int // slots a page, a multiple of 16
	// TokenMajor lays keys of a float type token by token, [Tokens][KeyDim], for readers that want single tokens.
	TokenMajor bool
	// ValueInKey says that a token's value is its key (latent attention): pages have no values of their own. Keys lie token by token.
	ValueInKey bool
	// Index is how many of a key's numbers, its last ones, are a trained indexer's.
	Index int
}

// Of is the layout of a layer's pages: the same slots, the same types but where the layer has its own, and the layer's widths.
func (l Layout) Of(kv cacheshape.KV) Layout {
	if kv.Type > 0 {
		l.K, l.V = Elem(kv.Type-1), Elem(kv.Type-1)
	}
	return l.Sized(kv)
}

// Sized is a layout of the same types and slots and a layer's widths.
func (l Layout) Sized(kv cacheshape.KV) Layout {
	l.KeyDim, l.ValueDim, l.Index = kv.KeyDim, kv.ValueDim, kv.Index
	if kv.ValueInKey {
		l.ValueInKey, l.TokenMajor = true, true
	}
	return l
}

// Validate reports the first number out of range, wrapping ErrLayout.
func (l Layout) Validate() error {
	switch {
	case int(l.K) >= len(elemNames) || int(l.V) >= len(elemNames):
		return fmt.Errorf("kvpage: layout %v: element type %d/%d, want 0 to %d: %w", l, l.K, l.V, len(elemNames)-1, ErrLayout)
	case l.KeyDim < 1 || l.KeyDim > maxDim || l.ValueDim < 1 || l.ValueDim > maxDim:
		return fmt.Errorf("kvpage: layout %v: dimensions %d/%d, want 1 to %d: %w", l, l.KeyDim, l.ValueDim, maxDim, ErrLayout)
	case l.Tokens < Tile || l.Tokens > maxTokens || l.Tokens%l.K.KeyGroup() != 0:
		return fmt.Errorf("kvpage: layout %v: %d tokens a page, want a multiple of %d up to %d: %w", l, l.Tokens, l.K.KeyGroup(), maxTokens, ErrLayout)
	case l.Index < 0 || l.Index >= l.KeyDim:
		return fmt.Errorf("kvpage: layout %v: %d numbers of an index in a key of %d, want fewer: %w", l, l.Index, l.KeyDim, ErrLayout)
	case l.ValueInKey && (l.K.Quantised() || l.V != l.K || l.KeyDim != l.ValueDim || !l.TokenMajor):
		return fmt.Errorf("kvpage: layout %v: latent keys that are values too: want one float type for both: %w", l, ErrLayout)
	case l.TokenMajor && l.K.Quantised():
		return fmt.Errorf("kvpage: layout %v: keys that share scales over a tile cannot lie token by token: %w", l, ErrLayout)
	}
	return nil
}

// String is for messages: "k=f16 v=f16 64/64 x16", "k=f16 by token v=f16 64/64 x16".
func (l Layout) String() string {
	order := ""
	if l.TokenMajor {
		order = " by token"
	}
	if l.ValueInKey {
		return fmt.Sprintf("k=%v%s latent %d x%d", l.K, order, l.KeyDim, l.Tokens)
	}
	return fmt.Sprintf("k=%v%s v=%v %d/%d x%d", l.K, order, l.V, l.KeyDim, l.ValueDim, l.Tokens)
}

// PageTokens is how many tokens a page of such keys holds where nobody chose.
func (e Elem) PageTokens() int { return e.KeyGroup() }

// Tiles is the number of 16-token tiles of a page.
func (l Layout) Tiles() int { return l.Tokens / Tile }

// KTileBytes is the size of one tile of keys, scales included.
func (l Layout) KTileBytes() int { return l.keyScales() + l.keyCodes() }

// keyScales is the size of what a group of keys has before its numbers.
func (l Layout) keyScales() int {
	switch l.K {
	case I8:
		return l.KeyDim * 2
	case I4:
		return l.KeyDim * 4
	case I3, I2: // and the lone key
		return l.KeyDim*6 + 2
	}
	return 0
}

// keyCodes is the size of a tile's numbers alone.
func (l Layout) keyCodes() int {
	if l.K.low() {
		return l.K.lowKeyCodes(l.KeyDim)
	}
	return l.KeyDim * Tile * l.K.Bits() / 8
}

// keyGroupBytes is the size of a group of keys.
func (l Layout) keyGroupBytes() int { return l.keyScales() + l.K.KeyGroup()/Tile*l.keyCodes() }

// VRowBytes is the size of one token's value, scales included.
func (l Layout) VRowBytes() int {
	switch n := l.ValueDim; l.V {
	case I8:
		return n + l.valueGroups()*2
	case I4: // whole 32 dimensions in 16 bytes; of fewer at the end the first 16 have a byte each
		return n/32*16 + min(n%32, 16) + l.valueGroups()*4
	case I3, I2:
		return l.V.lowRow(n)
	default:
		return n * l.V.Bits() / 8
	}
}

func (l Layout) valueGroups() int { return (l.ValueDim + valueGroup - 1) / valueGroup }

// KBytes is the size of the K payload of a page.
func (l Layout) KBytes() int { return l.Tokens / l.K.KeyGroup() * l.keyGroupBytes() }

// VBytes is the size of the V payload of a page; 0 where values are keys.
func (l Layout) VBytes() int {
	if l.ValueInKey {
		return 0
	}
	return l.Tokens * l.VRowBytes()
}

// ValuesAt is where the values begin in a page: behind the keys, or where they begin if they are them.
func (l Layout) ValuesAt() int {
	if l.ValueInKey {
		return 0
	}
	return l.KBytes()
}

// PageBytes is the size of a page in memory: K payload, then V payload.
func (l Layout) PageBytes() int { return l.KBytes() + l.VBytes() }

// KTile is the part of a page that holds the keys of tokens [16t, 16t+16): [KeyDim][16], scales before it, or
// [16][KeyDim] where TokenMajor. Where tiles share scales it begins with those, and the tile's codes are its end.
func (l Layout) KTile(page []byte, t int) []byte {
	if !l.K.low() {
		n := l.KTileBytes()
		return page[t*n : (t+1)*n : (t+1)*n]
	}
	const tiles = lowGroup / Tile
	from := t / tiles * l.keyGroupBytes()
	to := from + l.keyScales() + (t%tiles+1)*l.keyCodes()
	return page[from:to:to]
}

// KGroup is the part of a page that holds group g of quantised keys.
func (l Layout) KGroup(page []byte, g int) []byte {
	n := l.keyGroupBytes()
	return page[g*n : (g+1)*n : (g+1)*n]
}

// KRow is the part of a page that holds the key of the token in a slot, of a TokenMajor layout.
func (l Layout) KRow(page []byte, slot int) []byte {
	n := l.KeyDim * l.K.Bits() / 8
	return page[slot*n : (slot+1)*n : (slot+1)*n]
}

// keyAt is where number d of the key in a slot lies in its tile, in numbers.
func (l Layout) keyAt(slot, d int) int {
	if l.TokenMajor {
		return slot%Tile*l.KeyDim + d
	}
	return d*Tile + slot%Tile
}

// VRow is the part of a page that holds the value of the token in a slot.
func (l Layout) VRow(page []byte, slot int) []byte {
	n := l.VRowBytes()
	from := l.ValuesAt() + slot*n
	return page[from : from+n : from+n]
}
