package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// bpeModel encodes words by byte-pair encoding. Immutable; the scratch comes
// from the caller.
type bpeModel struct {
	vocab   *Vocab
	pairs   *pairTable
	whole   *tokenTable // by raw text, when words that are tokens never merge
	bytes   [256]int32  // id of one byte (byte level) or of its <0x..> token
	chars   *tokenTable // RawText: characters by text
	cuts    spaceCuts   // RawText: where a long word may be cut, nil = nowhere
	unknown int32       // id for a character without a token; -1 = leave it out
	close   bool        // what surrounds a character that is left out may merge
}

func newBPE(v *Vocab, ids *tokenTable) (*bpeModel, error) {
	m := &bpeModel{vocab: v, pairs: newPairTable(len(v.Merges)), unknown: -1}
	if v.EmitUnknown && v.UNK >= 0 {
		m.unknown = int32(v.UNK)
	}
	m.close = v.Outside != nil && m.unknown < 0
	for rank, merge := range v.Merges {
		left, right, joined, err := mergeIDs(ids, merge)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: merge %d %.80q: %w: %w", rank, merge, err, ErrVocab)
		}
		m.pairs.add(left, right, uint32(rank), joined)
	}
	if len(v.Outside) > 0 {
		ids, _ = newTokenTable(v.Tokens, func(id int) bool { return !v.Outside[id] })
	}
	for b := range 256 {
		switch {
		case !v.RawText:
			m.bytes[b] = ids.find(string(byteRunes[b]))
		case v.NoByteFallback:
			m.bytes[b] = -1
		default:
			m.bytes[b] = ids.find(fmt.Sprintf("<0x%02X>", b))
		}
	}
	if v.RawText {
		m.chars = ids
		if !v.IgnoreMerges && !m.close {
			m.cuts = newSpaceCuts(v.Tokens)
		}
	}
	if v.IgnoreMerges {
		m.whole = ids
		if !v.RawText {
			raw := make([]string, len(v.Tokens))
			decodable := make([]bool, len(v.Tokens))
			for id, token := range v.Tokens {
				raw[id], decodable[id] = fromByteAlphabet(token)
				decodable[id] = decodable[id] && !v.Outside[id]
			}
			m.whole, _ = newTokenTable(raw, func(id int) bool { return decodable[id] })
		}
	}
	return m, nil
}

// mergeIDs looks up the parts and the result of "left right".
func mergeIDs(ids *tokenTable, merge string) (left, right, joined int32, err error) {
	if merge == "" {
		return 0, 0, 0, fmt.Errorf("empty, want two tokens with a space between")
	}
	// The first character is part of the left token even when it is a space.
	space := strings.IndexByte(merge[1:], ' ') + 1
	if space < 1 || space+1 >= len(merge) {
		return 0, 0, 0, fmt.Errorf("not two tokens with a space between")
	}
	l, r := merge[:space], merge[space+1:]
	if left = ids.find(l); left < 0 {
		return 0, 0, 0, fmt.Errorf("%.40q is not a token", l)
	}
	if right = ids.find(r); right < 0 {
		return 0, 0, 0, fmt.Errorf("%.40q is not a token", r)
	}
	if joined = ids.find(l + r); joined < 0 {
		return 0, 0, 0, fmt.Errorf("its result %.40q is not a token", l+r)
	}
	return left, right, joined, nil
}

// encode appends the ids of one word.
func (m *bpeModel) encode(sc *scratch, word string, out []int32) []int32 {
	if m.whole != nil {
		if id := m.whole.find(word); id >= 0 {
			return append(out, id)
		}
	}
	syms := sc.syms[:0]
	if m.vocab.RawText {
		syms = m.characters(syms, word)
	} else {
		for i := range len(word) {
			syms = append(syms, m.bytes[word[i]])
		}
	}
	if m.close {
		syms = slices.DeleteFunc(syms, func(id int32) bool { return id < 0 })
	}
	sc.syms = syms
	sc.merger.step = sc.limits.step
	from := len(out)
	for _, id := range sc.merger.merge(m.pairs, syms) {
		if id < 0 {
			id = m.unknown
			if id < 0 || m.vocab.FuseUnknown && len(out) > from && out[len(out)-1] == id {
				continue
			}
		}
		out = append(out, id)
	}
	return out
}

// characters appends one symbol a character, or its byte tokens when it has
// none, or -1 when there are not even those.
func (m *bpeModel) characters(syms []int32, word string) []int32 {
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		char := word[i : i+n]
		i += n
		if id := m.chars.find(char); id >= 0 {
			syms = append(syms, id)
			continue
		}
		from := len(syms)
		for j := range len(char) {
			if m.bytes[char[j]] < 0 {
				syms = append(syms[:from], -1)
				break
			}
			syms = append(syms, m.bytes[char[j]])
		}
	}
	return syms
}
