package jinja

import "math/big"

// bigInt is an integer beyond 64 bits, as Python writes it.
type bigInt string

// asBig is an integer of any size.
func asBig(v any) (*big.Int, bool) {
	if n, ok := integer(v); ok {
		return big.NewInt(n), true
	}
	b, ok := v.(bigInt)
	if !ok {
		return nil, false
	}
	n, ok := new(big.Int).SetString(string(b), 10)
	return n, ok
}

// fromBig is n as an int64 where it fits.
func fromBig(n *big.Int) any {
	if n.IsInt64() {
		return n.Int64()
	}
	return bigInt(n.String())
}

// bigs computes with integers of any size; false where it does not apply.
func (r *run) bigs(op string, a, b any) (any, bool) {
	x, okX := asBig(a)
	y, okY := asBig(b)
	if !okX || !okY {
		return nil, false
	}
	r.charge(x.BitLen() + y.BitLen())
	r.fits((x.BitLen() + y.BitLen()) / 3)
	z := new(big.Int)
	switch op {
	case "+":
		return fromBig(z.Add(x, y)), true
	case "-":
		return fromBig(z.Sub(x, y)), true
	case "*":
		return fromBig(z.Mul(x, y)), true
	case "//", "%":
		if y.Sign() == 0 {
			throw("integer division or modulo by zero")
		}
		q, m := new(big.Int).DivMod(x, y, new(big.Int))
		if m.Sign() != 0 && y.Sign() < 0 { // Euclid's to Python's: the remainder has the divisor's sign
			q, m = q.Sub(q, big.NewInt(1)), m.Add(m, y)
		}
		if op == "%" {
			return fromBig(m), true
		}
		return fromBig(q), true
	case "**":
		if y.Sign() < 0 || !y.IsInt64() {
			return nil, false
		}
		r.fits(int(min(y.Int64(), 1<<40)) * max(x.BitLen(), 1) / 3)
		r.charge(x.BitLen() * int(y.Int64()))
		return fromBig(z.Exp(x, y, nil)), true
	}
	return nil, false
}
