package jinja

import (
	"math"
	"strconv"
	"strings"
)

// percent is Python's s % v.
func (r *run) percent(s string, v any) any {
	args := []any{v}
	if l, ok := v.(*List); ok && l.kind == kindTuple {
		args = l.Items
	}
	named, _ := v.(*Dict)
	subscripted := false // Python takes it for a mapping, whose entries need not all be used
	switch l := v.(type) {
	case *Dict, *rangeValue, *undefined:
		subscripted = true
	case *List:
		subscripted = l.kind == kindList
	}
	var b strings.Builder
	used := 0
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		i++
		var f spec
		var of any
		byName := false
		if i < len(s) && s[i] == '(' {
			end := strings.IndexByte(s[i:], ')')
			if end < 0 || named == nil {
				throw("format requires a mapping")
			}
			name := s[i+1 : i+end]
			x, ok := named.Get(name)
			if !ok {
				throw("%s", pythonQuote(name))
			}
			of, byName = x, true
			i += end + 1
		}
		i += f.flags(s[i:])
		if i >= len(s) {
			throw("incomplete format")
		}
		if s[i] == '%' {
			b.WriteByte('%')
			continue
		}
		if !byName {
			if used >= len(args) {
				throw("not enough arguments for format string")
			}
			of = args[used]
			used++
		}
		b.WriteString(r.percentOne(&f, s[i], of))
		r.fits(b.Len())
	}
	if used < len(args) && !subscripted {
		throw("not all arguments converted during string formatting")
	}
	return r.made(b.String())
}

// spec is how one value is written: Python's format specification.
type spec struct {
	fill       string
	align      byte // <, >, ^, = or 0
	sign       byte // +, blank or 0
	alternate  bool
	zero       bool
	width      int
	comma      byte // , or _
	precision  int
	hasPrecise bool
	kind       byte
}

const maxWidth = 1 << 16

func digits(s string) (n, length int) {
	for length < len(s) && s[length] >= '0' && s[length] <= '9' {
		if n = n*10 + int(s[length]-'0'); n > maxWidth {
			throw("a width or precision above %d", maxWidth)
		}
		length++
	}
	return n, length
}

// flags reads the flags, width and precision of a %-format and returns their length.
func (f *spec) flags(s string) int {
	i := 0
	f.align = '>'
	for ; i < len(s); i++ {
		switch s[i] {
		case '-':
			f.align = '<'
		case '0':
			f.zero = true
		case '+', ' ':
			f.sign = s[i]
		case '#':
			f.alternate = true
		default:
			goto width
		}
	}
width:
	var n int
	f.width, n = digits(s[i:])
	i += n
	if i < len(s) && s[i] == '.' {
		f.precision, n = digits(s[i+1:])
		f.hasPrecise = true
		i += n + 1
	}
	return i
}

func (r *run) percentOne(f *spec, kind byte, v any) string {
	switch kind {
	case 's', 'r', 'a':
		t := r.str(v)
		if kind != 's' {
			t = r.repr(v)
		}
		if list := []rune(t); f.hasPrecise && f.precision < len(list) {
			t = string(list[:f.precision])
		}
		return r.padded(t, int64(f.width), " ", f.align == '>', f.align == '<')
	case 'd', 'i', 'u', 'x', 'X', 'o':
		n, ok := integer(v)
		if x, isFloat := v.(float64); isFloat && (kind == 'd' || kind == 'i' || kind == 'u') {
			n, ok = int64(x), true
		}
		if !ok {
			throw("%%%c format: a real number is required, not %s", kind, typeName(v))
		}
		f.kind = 'd'
		if kind == 'x' || kind == 'X' || kind == 'o' {
			f.kind = kind
		}
		f.hasPrecise = false
		return f.integer(n)
	case 'f', 'F', 'e', 'E', 'g', 'G':
		x, ok := number(v)
		if !ok {
			throw("must be real number, not %s", typeName(v))
		}
		f.kind = kind
		return f.float(x)
	case 'c':
		if t, ok := text(v); ok && runes(t) == 1 {
			return t
		}
	}
	throw("unsupported format character %s", pythonQuote(string(kind)))
	return ""
}

// parseSpec reads the part behind ":" of a replacement field.
func parseSpec(s string) spec {
	f := spec{fill: " "}
	list := []rune(s)
	isAlign := func(i int) bool { return i < len(list) && strings.ContainsRune("<>^=", list[i]) }
	switch {
	case isAlign(1):
		f.fill, f.align = string(list[0]), byte(list[1])
		list = list[2:]
	case isAlign(0):
		f.align = byte(list[0])
		list = list[1:]
	}
	s = string(list)
	take := func(set string) byte {
		if s != "" && strings.IndexByte(set, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	if c := take("+- "); c != '-' {
		f.sign = c
	}
	f.alternate = take("#") != 0
	f.zero = take("0") != 0
	var n int
	f.width, n = digits(s)
	s = s[n:]
	f.comma = take(",_")
	if take(".") != 0 {
		f.precision, n = digits(s)
		if n == 0 {
			throw("Format specifier missing precision")
		}
		f.hasPrecise = true
		s = s[n:]
	}
	f.kind = take("bcdeEfFgGnosxX%")
	if s != "" {
		throw("Invalid format specifier")
	}
	return f
}

// formatted is Python's format(v, f).
func (r *run) formatted(v any, f spec) string {
	switch v.(type) {
	case string, markup:
		if f.kind != 0 && f.kind != 's' {
			throw("Unknown format code %s for object of type 'str'", pythonQuote(string(f.kind)))
		}
		t, _ := text(v)
		if list := []rune(t); f.hasPrecise && f.precision < len(list) {
			t = string(list[:f.precision])
		}
		if f.align == 0 {
			f.align = '<'
		}
		return r.padded(t, int64(f.width), f.fill, f.align != '<', f.align != '>')
	case int64, bool, float64:
	default:
		if f != (spec{fill: " "}) {
			throw("unsupported format string passed to %s.__format__", typeName(v))
		}
		return r.str(v)
	}
	if _, ok := v.(bool); ok && f.kind == 0 && f.width == 0 {
		return r.str(v)
	}
	if n, ok := integer(v); ok && strings.IndexByte("\x00bcdnoxX", f.kind) >= 0 {
		return f.integer(n)
	}
	x, _ := number(v)
	if f.kind != 0 && strings.IndexByte("eEfFgGn%", f.kind) < 0 {
		throw("Unknown format code %s for object of type %s", pythonQuote(string(f.kind)), pythonQuote(typeName(v)))
	}
	return f.float(x)
}

func (f *spec) integer(n int64) string {
	if f.hasPrecise {
		throw("Precision not allowed in integer format specifier")
	}
	base, prefix := 10, ""
	switch f.kind {
	case 'b':
		base, prefix = 2, "0b"
	case 'o':
		base, prefix = 8, "0o"
	case 'x', 'X':
		base, prefix = 16, "0x"
	case 'c':
		return f.finish("", string(rune(n)))
	}
	s := strings.TrimPrefix(strconv.FormatInt(n, base), "-")
	if !f.alternate {
		prefix = ""
	}
	if f.kind == 'X' {
		s, prefix = strings.ToUpper(s), strings.ToUpper(prefix)
	}
	group := 3
	if base != 10 {
		group = 4
	}
	return f.finish(f.signOf(n < 0)+prefix, grouped(s, f.comma, group))
}

func (f *spec) signOf(negative bool) string {
	switch {
	case negative:
		return "-"
	case f.sign != 0:
		return string(f.sign)
	}
	return ""
}

// float writes x; without a kind as repr does, with a precision as g.
func (f *spec) float(x float64) string {
	negative := math.Signbit(x)
	x = math.Abs(x)
	precision := 6
	if f.hasPrecise {
		precision = f.precision
	}
	kind, tail := f.kind, ""
	var s string
	switch {
	case math.IsInf(x, 0) || math.IsNaN(x):
		s = floatText(x)
		negative = negative && !math.IsNaN(x)
	case kind == 0 && !f.hasPrecise:
		s = floatText(x)
	case kind == '%':
		s, tail = strconv.FormatFloat(x*100, 'f', precision, 64), "%"
	case kind == 'f' || kind == 'F':
		s = strconv.FormatFloat(x, 'f', precision, 64)
	case kind == 'e' || kind == 'E':
		s = strconv.FormatFloat(x, 'e', precision, 64)
	default:
		s = general(x, max(precision, 1), f.alternate)
		if kind == 0 && !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
	}
	if kind == 'E' || kind == 'G' || kind == 'F' {
		s = strings.ToUpper(s)
	}
	whole, rest := s, ""
	if i := strings.IndexAny(s, ".eE"); i >= 0 {
		whole, rest = s[:i], s[i:]
	}
	return f.finish(f.signOf(negative), grouped(whole, f.comma, 3)+rest+tail)
}

// general is the format g: precision digits, an exponent where it is shorter, no trailing zeros.
func general(x float64, precision int, keep bool) string {
	s := strconv.FormatFloat(x, 'e', precision-1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	e, _ := strconv.Atoi(exponent)
	trim := func(s string) string {
		if !keep && strings.Contains(s, ".") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s
	}
	if x != 0 && (e < -4 || e >= precision) {
		return trim(mantissa) + sprintf("e%+03d", e)
	}
	return trim(strconv.FormatFloat(x, 'f', max(precision-1-e, 0), 64))
}

func grouped(s string, sep byte, n int) string {
	if sep == 0 {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if i > 0 && (len(s)-i)%n == 0 {
			b.WriteByte(sep)
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// finish puts sign and digits together and fills up to the width.
func (f *spec) finish(sign, s string) string {
	fill, align := f.fill, f.align
	if fill == "" {
		fill = " "
	}
	if f.zero && (align == 0 || align == '>' && f.fill == "") {
		fill, align = "0", '='
	}
	n := f.width - runes(sign) - runes(s)
	if n <= 0 {
		return sign + s
	}
	switch align {
	case '=':
		return sign + strings.Repeat(fill, n) + s
	case '<':
		return sign + s + strings.Repeat(fill, n)
	case '^':
		return strings.Repeat(fill, n/2) + sign + s + strings.Repeat(fill, n-n/2)
	}
	return strings.Repeat(fill, n) + sign + s
}

// format is str.format.
func (r *run) format(s string, args []any, list []named) string {
	values := NewDict()
	for _, n := range list {
		values.Set(n.name, n.value)
	}
	auto := 0
	return r.fields(s, args, values, &auto, 0)
}

func (r *run) fields(s string, args []any, values *Dict, auto *int, depth int) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '{' && s[i] != '}':
			b.WriteByte(s[i])
			continue
		case i+1 < len(s) && s[i+1] == s[i]:
			b.WriteByte(s[i])
			i++
			continue
		case s[i] == '}':
			throw("Single '}' encountered in format string")
		}
		end, open := i+1, 1
		for ; end < len(s); end++ {
			if s[end] == '{' {
				open++
			} else if s[end] == '}' {
				if open--; open == 0 {
					break
				}
			}
		}
		if end == len(s) || depth > 1 {
			throw("Single '{' encountered in format string")
		}
		field, how, _ := strings.Cut(s[i+1:end], ":")
		field, conversion, _ := strings.Cut(field, "!")
		v := r.field(field, args, values, auto)
		how = r.fields(how, args, values, auto, depth+1)
		switch conversion {
		case "":
			b.WriteString(r.formatted(v, parseSpec(how)))
		case "s":
			b.WriteString(r.formatted(r.str(v), parseSpec(how)))
		case "r":
			b.WriteString(r.formatted(r.repr(v), parseSpec(how)))
		default:
			throw("Unknown conversion specifier %s", conversion)
		}
		r.fits(b.Len())
		i = end
	}
	return b.String()
}

// field is the value that a replacement field names: a number or name, then attributes and entries.
func (r *run) field(name string, args []any, values *Dict, auto *int) any {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, rest := name[:end], name[end:]
	var v any
	if n, err := strconv.Atoi(first); err == nil || first == "" {
		if first == "" {
			n = *auto
			*auto++
		}
		if n < 0 || n >= len(args) {
			throw("Replacement index %d out of range for positional args tuple", n)
		}
		v = args[n]
	} else {
		x, ok := values.Get(first)
		if !ok {
			throw("%s", pythonQuote(first))
		}
		v = x
	}
	for rest != "" {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			if end == 1 {
				throw("Empty attribute in format string")
			}
			v, rest = r.attr(v, rest[1:end]), rest[end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		switch {
		case rest[0] != '[':
			throw("Only '.' or '[' may follow ']' in format field specifier")
		case end < 0:
			throw("Missing ']' in format string")
		case end == 1:
			throw("Empty attribute in format string")
		}
		var key any = rest[1:end]
		if n, err := strconv.ParseInt(rest[1:end], 10, 64); err == nil {
			key = n
		}
		v, rest = r.item(v, key), rest[end+1:]
	}
	return v
}
