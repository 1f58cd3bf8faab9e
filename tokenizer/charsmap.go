package tokenizer

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// charsmap is SentencePiece's precompiled normalisation: a compact double
// array (Yata et al. 2007, as darts-clone writes it) over UTF-8 bytes, whose
// values are offsets of NUL-terminated replacements.
type charsmap struct {
	units    []uint32
	replaced string
}

func newCharsmap(blob []byte) (*charsmap, error) {
	if len(blob) < 4 {
		return nil, fmt.Errorf("tokenizer: precompiled charsmap of %d bytes is too short: %w", len(blob), ErrVocab)
	}
	size := uint64(binary.LittleEndian.Uint32(blob))
	blob = blob[4:]
	if size%4 != 0 || size >= uint64(len(blob)) {
		return nil, fmt.Errorf("tokenizer: precompiled charsmap claims %d bytes of trie, %d are left: %w", size, len(blob), ErrVocab)
	}
	c := &charsmap{units: make([]uint32, size/4), replaced: string(blob[size:])}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(blob[4*i:])
	}
	return c, nil
}

// longest returns the replacement of the longest prefix of s that has one, and
// the length of that prefix; 0 when none has.
func (c *charsmap) longest(s string) (replacement string, size int) {
	unit := func(i uint32) uint32 {
		if int(i) < len(c.units) {
			return c.units[i]
		}
		return 0
	}
	offset := func(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }
	node := uint32(0)
	node ^= offset(unit(node))
	for i := range len(s) {
		if s[i] == 0 {
			break
		}
		node ^= uint32(s[i])
		u := unit(node)
		if u&(1<<31|0xFF) != uint32(s[i]) {
			break
		}
		node ^= offset(u)
		if u>>8&1 == 1 {
			at := unit(node) &^ (1 << 31)
			if int(at) < len(c.replaced) {
				text := c.replaced[at:]
				if end := strings.IndexByte(text, 0); end >= 0 {
					text = text[:end]
				}
				replacement, size = text, i+1
			}
		}
	}
	return replacement, size
}

func (c *charsmap) normalize(s string, most int) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); {
		replacement, n := c.longest(s[i:])
		if n == 0 {
			_, n = utf8.DecodeRuneInString(s[i:])
			replacement = s[i : i+n]
		}
		if b.Len()+len(replacement) > most {
			return "", false
		}
		b.WriteString(replacement)
		i += n
	}
	return b.String(), true
}
