package jinja

import (
	"fmt"
	"strings"
	"time"
)

var globals map[string]any

func init() {
	globals = map[string]any{}
	for name, call := range map[string]func(r *run, args []any, list []named) any{
		"range": rangeOf, "namespace": namespaceOf, "dict": dictOf,
		"raise_exception": func(r *run, args []any, list []named) any {
			panic(thrown{&Raised{fmt.Sprintf("%.600s", r.str(bind("raise_exception()", args, list, 1, "message").values[0]))}})
		},
		"strftime_now": func(r *run, args []any, list []named) any {
			return strftime(r.limits.Now(), r.wantText(bind("strftime_now()", args, list, 1, "format").values[0], "format"))
		},
		"cycler": func(_ *run, args []any, _ []named) any {
			if len(args) == 0 {
				throw("at least one item has to be provided")
			}
			return &cyclerValue{items: args}
		},
		"joiner": func(r *run, args []any, list []named) any {
			return &joinerValue{sep: r.str(bind("joiner()", args, list, 0, "sep").or(0, ", "))}
		},
	} {
		globals[name] = &builtin{name: name, call: call}
	}
}

func rangeOf(r *run, args []any, list []named) any {
	if len(args) == 0 || len(args) > 3 || len(list) > 0 {
		throw("range expected 1 to 3 arguments, got %d", len(args))
	}
	n := [3]int64{0, 0, 1}
	for i, a := range args {
		n[i] = r.wantInt(a, "range() arguments")
	}
	v := &rangeValue{n[0], n[1], n[2]}
	if len(args) == 1 {
		v = &rangeValue{0, n[0], 1}
	}
	if v.step == 0 {
		throw("range() arg 3 must not be zero")
	}
	const far = 1 << 40
	if v.start < -far || v.start > far || v.stop < -far || v.stop > far || v.step < -far || v.step > far || v.length() > maxRange {
		r.limit("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return v
}

// dictOf is dict(mapping or pairs, name=value …).
func dictOf(r *run, args []any, list []named) any {
	d := NewDict()
	if len(args) > 1 {
		throw("dict expected at most 1 argument, got %d", len(args))
	}
	for _, a := range args {
		if from, ok := a.(*Dict); ok {
			d = from.Copy()
			continue
		}
		for _, pair := range r.iterate(a) {
			kv := r.iterate(pair)
			if len(kv) != 2 {
				throw("dictionary update sequence element has length %d; 2 is required", len(kv))
			}
			d.Set(kv[0], kv[1])
		}
	}
	for _, n := range list {
		d.Set(n.name, n.value)
	}
	r.charge(32 * d.Len())
	return d
}

func namespaceOf(r *run, args []any, list []named) any {
	return &namespaceValue{dictOf(r, args, list).(*Dict)}
}

var strftimeLayouts = map[byte]string{
	'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'y': "06", 'b': "Jan", 'h': "Jan", 'B': "January",
	'a': "Mon", 'A': "Monday", 'I': "03", 'p': "PM", 'j': "002", 'Z': "MST", 'z': "-0700", 'e': "_2", 'f': "000000",
	'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

// strftime is datetime.strftime in the C locale.
func strftime(at time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		bare := format[i] == '-' && i+1 < len(format) // glibc: no leading zero
		if bare {
			i++
		}
		layout, ok := strftimeLayouts[format[i]]
		var s string
		switch {
		case format[i] == '%':
			s = "%"
		case format[i] == 'f':
			s = sprintf("%06d", at.Nanosecond()/1000)
		case format[i] == 'u':
			s = sprintf("%d", (int(at.Weekday())+6)%7+1)
		case format[i] == 'w':
			s = sprintf("%d", at.Weekday())
		case format[i] == 's':
			s = sprintf("%d", at.Unix())
		case ok:
			s = at.Format(layout)
		default:
			throw("strftime_now: %%%c is not supported", format[i])
		}
		if bare {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String()
}
