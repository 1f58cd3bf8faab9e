package jinja

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// FromJSON turns JSON into values: objects keep the order of their members; the last of equal names counts.
func FromJSON(data []byte) (any, error) {
	return readJSON(jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true)), 0)
}

func readJSON(d *jsontext.Decoder, depth int) (any, error) {
	if depth > maxNest {
		return nil, fmt.Errorf("jinja: JSON nested deeper than %d: %w", maxNest, ErrLimit)
	}
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '"':
		return t.String(), nil
	case '0':
		return jsonNumber(t.String())
	case 't', 'f':
		return t.Bool(), nil
	case '[':
		list := &List{}
		for d.PeekKind() != ']' {
			v, err := readJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			list.Items = append(list.Items, v)
		}
		_, err = d.ReadToken()
		return list, err
	case '{':
		dict := NewDict()
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String()
			v, err := readJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			dict.Set(key, v)
		}
		_, err = d.ReadToken()
		return dict, err
	}
	return nil, nil
}

func jsonNumber(s string) (any, error) {
	if strings.ContainsAny(s, ".eE") {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil && x == 0 {
			return nil, err
		}
		return x, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	return bigInt(s), nil
}

// jsonWriter is Python's json.dumps.
type jsonWriter struct {
	r           *run
	b           strings.Builder
	indent      string // of a level; "" with indented false: one line
	indented    bool
	item, colon string
	ascii, sort bool
}

// toJSON is transformers' filter tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False).
func toJSON(r *run, v any, a *bound) any {
	w := &jsonWriter{r: r, item: ", ", colon: ": ", ascii: truth(a.or(0, false)), sort: truth(a.or(3, false))}
	switch indent := a.or(1, nil).(type) {
	case nil:
	case string:
		w.indent, w.indented, w.item = indent, true, ","
	default:
		n := r.wantInt(indent, "tojson: indent")
		w.indent, w.indented, w.item = strings.Repeat(" ", int(min(max(n, 0), 64))), true, ","
	}
	if sep := a.or(2, nil); sep != nil {
		pair := r.iterate(sep)
		if len(pair) != 2 {
			throw("tojson: separators are two strings")
		}
		w.item, w.colon = r.str(pair[0]), r.str(pair[1])
	}
	w.value(v, 0)
	return w.b.String()
}

func (w *jsonWriter) value(v any, depth int) {
	w.r.charge(1)
	w.r.fits(w.b.Len())
	if depth > maxNest {
		w.r.limit("values nest deeper than %d", maxNest)
	}
	switch v := v.(type) {
	case nil:
		w.b.WriteString("null")
	case bool:
		w.b.WriteString(strconv.FormatBool(v))
	case int64:
		w.b.WriteString(strconv.FormatInt(v, 10))
	case bigInt:
		w.b.WriteString(string(v))
	case float64:
		w.b.WriteString(jsonFloat(v))
	case string:
		w.text(v)
	case markup:
		w.text(string(v))
	case *List:
		if v.kind > kindTuple {
			throw("Object of type %s is not JSON serializable", typeName(v))
		}
		w.items('[', ']', len(v.Items), depth, func(i int) { w.value(v.Items[i], depth+1) })
	case *Dict:
		order := w.order(v)
		w.items('{', '}', len(order), depth, func(i int) {
			w.text(w.key(v.keys[order[i]]))
			w.b.WriteString(w.colon)
			w.value(v.values[order[i]], depth+1)
		})
	default:
		throw("Object of type %s is not JSON serializable", typeName(v))
	}
}

func jsonFloat(x float64) string {
	switch s := floatText(x); s {
	case "nan":
		return "NaN"
	case "inf":
		return "Infinity"
	case "-inf":
		return "-Infinity"
	default:
		return s
	}
}

func (w *jsonWriter) order(d *Dict) []int {
	order := make([]int, d.Len())
	for i := range order {
		order[i] = i
	}
	if w.sort {
		w.r.sortStable(order, func(i int) any { return d.keys[i] }, false)
	}
	return order
}

func (w *jsonWriter) key(k any) string {
	switch k := k.(type) {
	case string:
		return k
	case markup:
		return string(k)
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(k)
	case float64:
		return jsonFloat(k)
	case int64, bigInt:
		return w.r.str(k)
	}
	throw("keys must be str, int, float, bool or None, not %s", typeName(k))
	return ""
}

func (w *jsonWriter) items(open, closing byte, n, depth int, item func(i int)) {
	w.b.WriteByte(open)
	for i := range n {
		if i > 0 {
			w.b.WriteString(w.item)
		}
		w.newline(depth + 1)
		item(i)
	}
	if n > 0 {
		w.newline(depth)
	}
	w.b.WriteByte(closing)
}

func (w *jsonWriter) newline(depth int) {
	if w.indented {
		w.b.WriteByte('\n')
		w.b.WriteString(strings.Repeat(w.indent, depth))
	}
}

func (w *jsonWriter) text(s string) {
	w.b.WriteByte('"')
	for _, r := range s {
		switch short := strings.IndexRune("\"\\\n\r\t\f\b", r); {
		case short >= 0:
			w.b.WriteByte('\\')
			w.b.WriteByte("\"\\nrtfb"[short])
		case r < 0x20 || w.ascii && r > 0x7e && r < 0x10000:
			fmt.Fprintf(&w.b, "\\u%04x", r)
		case w.ascii && r >= 0x10000:
			fmt.Fprintf(&w.b, "\\u%04x\\u%04x", 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			w.b.WriteRune(r)
		}
	}
	w.b.WriteByte('"')
}
