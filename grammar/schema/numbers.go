package schema

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"terrace/grammar"
	"terrace/grammar/automaton"
)

// numbers is a set of numbers: those between two bounds, of one kind, that are multiples of one number.
type numbers struct {
	lo, hi         *big.Rat // nil: none
	loOpen, hiOpen bool
	kind           numberKind
	of             *big.Rat // multiples of it; nil: any
}

type numberKind uint8

const (
	anyNumber numberKind = iota
	integer
	fraction // no integer
)

func (n numbers) empty() bool {
	if n.lo == nil || n.hi == nil {
		return false
	}
	c := n.lo.Cmp(n.hi)
	return c > 0 || c == 0 && (n.loOpen || n.hiOpen || n.kind == integer && !n.lo.IsInt() || n.kind == fraction && n.lo.IsInt())
}

func (n numbers) and(m numbers) (numbers, bool) {
	if m.lo != nil && (n.lo == nil || m.lo.Cmp(n.lo) > 0 || m.lo.Cmp(n.lo) == 0 && m.loOpen) {
		n.lo, n.loOpen = m.lo, m.loOpen
	}
	if m.hi != nil && (n.hi == nil || m.hi.Cmp(n.hi) < 0 || m.hi.Cmp(n.hi) == 0 && m.hiOpen) {
		n.hi, n.hiOpen = m.hi, m.hiOpen
	}
	switch {
	case n.kind == anyNumber:
		n.kind = m.kind
	case m.kind != anyNumber && m.kind != n.kind:
		return numbers{}, false
	}
	if n.of == nil {
		n.of = m.of
	} else if m.of != nil {
		n.of = commonMultiple(n.of, m.of)
	}
	return n, !n.empty()
}

// commonMultiple is the least of two positive fractions.
func commonMultiple(a, b *big.Rat) *big.Rat {
	den := new(big.Int).Mul(a.Denom(), b.Denom())
	x := new(big.Int).Mul(a.Num(), b.Denom())
	y := new(big.Int).Mul(b.Num(), a.Denom())
	gcd := new(big.Int).GCD(nil, nil, x, y)
	return new(big.Rat).SetFrac(x.Mul(x.Div(x, gcd), y), den)
}

// not are the numbers outside.
func (n numbers) not() (out []numbers, err error) {
	if n.of != nil {
		return nil, fmt.Errorf("multipleOf under not: %w", grammar.ErrUnsupported)
	}
	if n.lo != nil {
		out = append(out, numbers{hi: n.lo, hiOpen: !n.loOpen})
	}
	if n.hi != nil {
		out = append(out, numbers{lo: n.hi, loOpen: !n.hiOpen})
	}
	switch n.kind {
	case integer:
		out = append(out, numbers{kind: fraction})
	case fraction:
		out = append(out, numbers{kind: integer})
	}
	return out, nil
}

// Bounds of numbers as they are written.
const (
	maxExponent   = 400
	maxLiteral    = 500 // bytes
	wholeDigits   = 40
	pointDigits   = 20
	maxRemainders = 10000
)

// number reads a JSON number exactly.
func number(text string) (*big.Rat, error) {
	mantissa, exponent, found := strings.Cut(strings.ToLower(text), "e")
	if e, err := strconv.Atoi(exponent); len(text) > maxLiteral || found && (err != nil || e > maxExponent || e < -maxExponent) {
		return nil, fmt.Errorf("number %.40s: %w", text, grammar.ErrTooLarge)
	}
	_ = mantissa
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, fmt.Errorf("number %.40s: %w", text, grammar.ErrSyntax)
	}
	return r, nil
}

// automaton has the decimal texts of the set.
func (n numbers) automaton() (*automaton.DFA, error) {
	if n.lo == nil && n.hi == nil && n.of == nil && n.kind == anyNumber {
		return freeNumber()
	}
	digits := wholeDigits
	for _, b := range []*big.Rat{n.lo, n.hi} {
		if b != nil {
			digits = max(digits, len(new(big.Int).Quo(b.Num(), b.Denom()).String())+1)
		}
	}
	whole, point := automaton.Repeat(automaton.Digit('0', '9'), 0, digits-1), automaton.Cat(automaton.Text("."), automaton.Repeat(automaton.Digit('0', '9'), 1, pointDigits))
	switch n.kind {
	case integer:
		point = automaton.Cat()
	case anyNumber:
		point = automaton.Opt(point)
	}
	d, err := automaton.Whole(automaton.Cat(automaton.Opt(automaton.Text("-")), automaton.Alt(automaton.Text("0"), automaton.Cat(automaton.Digit('1', '9'), whole)), point))
	if err != nil {
		return nil, err
	}
	var also []*automaton.Node
	if n.kind == fraction { // a digit other than 0 behind the point
		also = append(also, automaton.Cat(some('0', '9', true), automaton.Text("."), some('0', '9', false), automaton.Digit('1', '9'), some('0', '9', false)))
	}
	if n.lo != nil {
		also = append(also, atLeast(n.lo, n.loOpen))
	}
	if n.hi != nil {
		also = append(also, atMost(n.hi, n.hiOpen))
	}
	for _, node := range also {
		m, err := automaton.Whole(node)
		if err != nil {
			return nil, err
		}
		if d, err = automaton.Intersect(d, m); err != nil {
			return nil, err
		}
	}
	if n.of != nil {
		m, err := multiples(n.of)
		if err != nil {
			return nil, err
		}
		return automaton.Intersect(d, m)
	}
	return d, nil
}

// freeNumber has every number.
func freeNumber() (*automaton.DFA, error) {
	digit := automaton.Digit('0', '9')
	return automaton.Whole(automaton.Cat(automaton.Opt(automaton.Text("-")), automaton.Alt(automaton.Text("0"), automaton.Cat(automaton.Digit('1', '9'), automaton.Repeat(digit, 0, wholeDigits-1))),
		automaton.Opt(automaton.Cat(automaton.Text("."), automaton.Repeat(digit, 1, pointDigits))),
		automaton.Opt(automaton.Cat(automaton.Set(automaton.Range{Lo: 'e', Hi: 'e'}, automaton.Range{Lo: 'E', Hi: 'E'}), automaton.Opt(automaton.Set(automaton.Range{Lo: '+', Hi: '+'}, automaton.Range{Lo: '-', Hi: '-'})), automaton.Repeat(digit, 1, 3)))))
}

// some is any number of digits, with a sign before them where one may be.
func some(lo, hi byte, signed bool) *automaton.Node {
	n := automaton.Repeat(automaton.Digit(lo, hi), 0, -1)
	if signed {
		return automaton.Cat(automaton.Opt(automaton.Text("-")), n)
	}
	return n
}

// atLeast has the texts, signed, of numbers from b on (above it where open).
func atLeast(b *big.Rat, open bool) *automaton.Node {
	minus, none := automaton.Text("-"), new(big.Rat)
	if b.Sign() > 0 || b.Sign() == 0 && open {
		return above(b, open)
	}
	return automaton.Alt(above(none, false), automaton.Cat(minus, below(new(big.Rat).Neg(b), open)))
}

// atMost has those of numbers up to b.
func atMost(b *big.Rat, open bool) *automaton.Node {
	minus, none := automaton.Text("-"), new(big.Rat)
	if b.Sign() < 0 || b.Sign() == 0 && open {
		return automaton.Cat(minus, above(new(big.Rat).Neg(b), open))
	}
	return automaton.Alt(automaton.Cat(minus, above(none, false)), below(b, open))
}

// split writes a number that is not negative as its digits before and behind the point.
func split(b *big.Rat) (whole, point string) {
	digits, exact := b.FloatPrec()
	if !exact {
		digits = pointDigits + 1
	}
	whole, point, _ = strings.Cut(b.FloatString(digits), ".")
	return whole, point
}

// above has the unsigned texts of numbers from b on; comparison goes by the number of digits, then from left to right.
func above(b *big.Rat, open bool) *automaton.Node {
	whole, point := split(b)
	k := len(whole)
	digit, tail := automaton.Digit('0', '9'), automaton.Opt(automaton.Cat(automaton.Text("."), some('0', '9', false)))
	out := []*automaton.Node{automaton.Cat(automaton.Digit('1', '9'), automaton.Repeat(digit, k, -1), tail)}
	for i := range k {
		out = append(out, automaton.Cat(automaton.Text(whole[:i]), automaton.Digit(whole[i]+1, '9'), automaton.Repeat(digit, k-i-1, k-i-1), tail))
	}
	for i := range len(point) {
		out = append(out, automaton.Cat(automaton.Text(whole+"."+point[:i]), automaton.Digit(point[i]+1, '9'), some('0', '9', false)))
	}
	switch {
	case !open && point == "":
		out = append(out, automaton.Cat(automaton.Text(whole), tail))
	case !open:
		out = append(out, automaton.Cat(automaton.Text(whole+"."+point), some('0', '9', false)))
	case point == "":
		out = append(out, automaton.Cat(automaton.Text(whole+"."), some('0', '0', false), automaton.Digit('1', '9'), some('0', '9', false)))
	default:
		out = append(out, automaton.Cat(automaton.Text(whole+"."+point), some('0', '0', false), automaton.Digit('1', '9'), some('0', '9', false)))
	}
	return automaton.Alt(out...)
}

// below has those of numbers up to b.
func below(b *big.Rat, open bool) *automaton.Node {
	whole, point := split(b)
	k := len(whole)
	digit, tail := automaton.Digit('0', '9'), automaton.Opt(automaton.Cat(automaton.Text("."), some('0', '9', false)))
	var out []*automaton.Node
	if k > 1 { // fewer digits
		out = append(out, automaton.Cat(automaton.Text("0"), tail), automaton.Cat(automaton.Digit('1', '9'), automaton.Repeat(digit, 0, k-2), tail))
	}
	for i := range k {
		first := byte('0')
		if i == 0 && k > 1 {
			first = '1'
		}
		out = append(out, automaton.Cat(automaton.Text(whole[:i]), automaton.Digit(first, whole[i]-1), automaton.Repeat(digit, k-i-1, k-i-1), tail))
	}
	for i := range len(point) { // less behind the point, or a beginning of it
		out = append(out, automaton.Cat(automaton.Text(whole+"."+point[:i]), automaton.Digit('0', point[i]-1), some('0', '9', false)))
		if i > 0 {
			out = append(out, automaton.Text(whole+"."+point[:i]))
		}
	}
	if point != "" {
		out = append(out, automaton.Text(whole))
	}
	switch {
	case open:
	case point == "":
		out = append(out, automaton.Cat(automaton.Text(whole), automaton.Opt(automaton.Cat(automaton.Text("."), some('0', '0', false)))))
	default:
		out = append(out, automaton.Cat(automaton.Text(whole+"."+point), some('0', '0', false)))
	}
	return automaton.Alt(out...)
}

// multiples has the decimal texts of multiples of a number: states are remainders of the digits so far.
func multiples(of *big.Rat) (*automaton.DFA, error) {
	digits, exact := of.FloatPrec()
	scaled := new(big.Rat).Mul(of, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)))
	if !exact || !scaled.IsInt() || !scaled.Num().IsInt64() || scaled.Num().Int64()*int64(digits+2) > maxRemainders {
		return nil, fmt.Errorf("multipleOf %s: more than %d remainders: %w", of.RatString(), maxRemainders, grammar.ErrUnsupported)
	}
	mod := scaled.Num().Int64()
	ten := make([]int64, digits+1) // [behind the point]: what the digits so far are multiplied by
	ten[digits] = 1 % mod
	for i := digits - 1; i >= 0; i-- {
		ten[i] = ten[i+1] * 10 % mod
	}
	return automaton.Decimal(int(mod), digits, func(r, behind int) bool { return int64(r)*ten[behind]%mod == 0 })
}
