package grammar

import (
	"unicode/utf8"

	"terrace/grammar/automaton"
)

// part is what has been read of a character: nothing (0), bytes of UTF-8, or an escape of JSON. Low bits are the value so far.
type part uint32

const (
	partKind       = 24
	partWhole part = 0
)

// Kinds of parts. utfXY: Y bytes are missing of X.
const (
	utf21 = iota + 1
	utf32
	utf31
	utf43
	utf42
	utf41
	escape // after the backslash
	hex0   // after \u, then the digits
	hex1
	hex2
	hex3
	high // a high surrogate: its ten bits
	highSlash
	low0 // ten bits, and the digits of the low surrogate
	low1
	low2
	low3
)

var (
	wholeBytes = [...]int{utf21: 2, utf31: 3, utf41: 4}                                   // of the characters whose last byte is missing
	missing    = [...]uint{utf21: 6, utf32: 12, utf31: 6, utf43: 18, utf42: 12, utf41: 6} // bits
)

func makePart(kind int, value uint32) part { return part(uint32(kind)<<partKind | value) }

func (p part) split() (kind int, value uint32) {
	return int(p >> partKind), uint32(p & (1<<partKind - 1))
}

// advance reads one byte of a character; done says that r is whole. ok is false where no character goes on like this; escaped
// says that r was written as \uXXXX.
func (p part) advance(b byte, json bool) (next part, r rune, done, escaped, ok bool) {
	kind, v := p.split()
	switch {
	case p == partWhole:
		return firstByte(b, json)
	case kind <= utf41:
		if b&0xC0 != 0x80 {
			return 0, 0, false, false, false
		}
		v = v<<6 | uint32(b&0x3F)
		switch kind {
		case utf21, utf31, utf41:
			return 0, rune(v), true, false, utf8.ValidRune(rune(v)) && utf8.RuneLen(rune(v)) == wholeBytes[kind]
		case utf32:
			return makePart(utf31, v), 0, false, false, (v >= 0x20) && (v < 0xD800>>6 || v > 0xDFFF>>6)
		case utf43:
			return makePart(utf42, v), 0, false, false, v >= 0x10 && v <= 0x10F
		}
		return makePart(utf41, v), 0, false, false, true
	case kind == escape:
		return escapeByte(b)
	case kind == high:
		return makePart(highSlash, v), 0, false, false, b == '\\'
	case kind == highSlash:
		return makePart(low0, v<<12), 0, false, false, b == 'u'
	}
	return hexByte(kind, v, b)
}

func firstByte(b byte, json bool) (next part, r rune, done, escaped, ok bool) {
	switch {
	case json && b == '\\':
		return makePart(escape, 0), 0, false, false, true
	case json && (b < 0x20 || b == '"'):
		return 0, 0, false, false, false
	case b < 0x80:
		return 0, rune(b), true, false, true
	case b >= 0xC2 && b <= 0xDF:
		return makePart(utf21, uint32(b&0x1F)), 0, false, false, true
	case b >= 0xE0 && b <= 0xEF:
		return makePart(utf32, uint32(b&0x0F)), 0, false, false, true
	case b >= 0xF0 && b <= 0xF4:
		return makePart(utf43, uint32(b&0x07)), 0, false, false, true
	}
	return 0, 0, false, false, false
}

var shortEscape = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func escapeByte(b byte) (next part, r rune, done, escaped, ok bool) {
	if b == 'u' {
		return makePart(hex0, 0), 0, false, false, true
	}
	r, ok = shortEscape[b]
	return 0, r, ok, false, ok
}

func hexByte(kind int, v uint32, b byte) (next part, r rune, done, escaped, ok bool) {
	d, ok := hexDigit(b)
	if !ok {
		return 0, 0, false, false, false
	}
	switch kind {
	case hex0, hex1, hex2:
		v = v<<4 | d
		return makePart(kind+1, v), 0, false, false, true
	case hex3:
		v = v<<4 | d
		if v >= 0xD800 && v <= 0xDBFF {
			return makePart(high, v-0xD800), 0, false, false, true
		}
		return 0, rune(v), true, true, v < 0xDC00 || v > 0xDFFF
	}
	hi, lo := v>>12, (v&0xFFF)<<4|d // low0 to low3: the digits are the last 12 bits, at most three
	switch kind {
	case low0:
		return makePart(low1, hi<<12|lo), 0, false, false, lo == 0xD
	case low1:
		return makePart(low2, hi<<12|lo), 0, false, false, lo >= 0xDC
	case low2:
		return makePart(low3, hi<<12|lo), 0, false, false, true
	}
	return 0, rune(0x10000 + hi<<10 + (lo - 0xDC00)), true, true, lo >= 0xDC00 && lo <= 0xDFFF
}

func hexDigit(b byte) (uint32, bool) {
	switch {
	case b >= '0' && b <= '9':
		return uint32(b - '0'), true
	case b >= 'a' && b <= 'f':
		return uint32(b-'a') + 10, true
	case b >= 'A' && b <= 'F':
		return uint32(b-'A') + 10, true
	}
	return 0, false
}

// escapable are the characters that a serialiser writes as \uXXXX: those that have to be escaped, those that HTML has a
// meaning for, and what is not ASCII.
var escapable = []automaton.Range{{Lo: 0, Hi: 0x1F}, {Lo: '&', Hi: '\''}, {Lo: '<', Hi: '<'}, {Lo: '>', Hi: '>'}, {Lo: 0x7F, Hi: 0xD7FF}, {Lo: 0xE000, Hi: automaton.MaxRune}}

func isEscapable(r rune) bool {
	for _, x := range escapable {
		if r >= x.Lo && r <= x.Hi {
			return true
		}
	}
	return false
}

// viable says whether a character that begins like p leads on from a state of a text's automaton, with so many characters left
// after it.
func (p part) viable(e *Expr, q, left int32) bool {
	d := reader{e, left}
	kind, v := p.split()
	switch {
	case p == partWhole:
		return true
	case kind <= utf41:
		lo, hi := rune(v<<missing[kind]), rune((v+1)<<missing[kind]-1)
		switch kind {
		case utf21:
			lo = max(lo, 0x80)
		case utf32, utf31:
			lo = max(lo, 0x800)
		default:
			lo, hi = max(lo, 0x10000), min(hi, automaton.MaxRune)
		}
		return d.anyBut(q, lo, hi)
	case kind == escape:
		for _, r := range shortEscape {
			if d.any(q, r, r) {
				return true
			}
		}
		return d.anyEscaped(q, 0, automaton.MaxRune)
	case kind <= hex3:
		width := uint(4 * (4 - (kind - hex0)))
		lo, hi := rune(v<<width), rune((v+1)<<width-1)
		if d.anyEscaped(q, lo, hi) {
			return true
		}
		lo, hi = max(lo, 0xD800), min(hi, 0xDBFF)
		return lo <= hi && d.any(q, 0x10000+(lo-0xD800)<<10, 0x10000+(hi-0xD800)<<10+0x3FF)
	case kind == high, kind == highSlash:
		return d.any(q, rune(0x10000+v<<10), rune(0x10000+v<<10+0x3FF))
	}
	width := uint(4 * (4 - (kind - low0)))
	base := rune(0x10000 + v>>12<<10)
	lo, hi := rune((v&0xFFF)<<width), rune((v&0xFFF+1)<<width-1)
	lo, hi = max(lo, 0xDC00), min(hi, 0xDFFF)
	return lo <= hi && d.any(q, base+lo-0xDC00, base+hi-0xDC00)
}

// reader is an automaton, and how many characters may follow the next.
type reader struct {
	e    *Expr
	left int32
}

func (d reader) any(q int32, lo, hi rune) bool {
	if d.e.near != nil {
		return d.e.dfa.AnyNear(q, lo, hi, d.e.near, d.left)
	}
	return d.e.dfa.Any(q, lo, hi)
}

// anyBut is any without surrogates.
func (d reader) anyBut(q int32, lo, hi rune) bool {
	return lo < 0xD800 && d.any(q, lo, min(hi, 0xD7FF)) || hi > 0xDFFF && d.any(q, max(lo, 0xE000), hi)
}

func (d reader) anyEscaped(q int32, lo, hi rune) bool {
	for _, x := range escapable {
		if a, b := max(lo, x.Lo), min(hi, x.Hi); a <= b && d.any(q, a, b) {
			return true
		}
	}
	return false
}
