package tokenizer

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// filterJSON is tojson as Hugging Face defines it: json.dumps with
// ensure_ascii off, ", " and ": " between items, or indented lines.
func (g *guard) filterJSON(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	w := jsonWriter{indent: -1, limit: g.lim.maxBytes}
	if v, ok := params.KwArgs["indent"]; ok && v.IsInteger() {
		w.indent = min(max(v.Integer(), 0), 16)
	}
	if err := w.value(in.Val, 0); err != nil {
		return exec.AsValue(fmt.Errorf("filter tojson: %w", err))
	}
	if err := g.lim.fits(w.b.Len()); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(w.b.String())
}

type jsonWriter struct {
	b      strings.Builder
	indent int // spaces a level; -1 = on one line
	limit  int
}

func (w *jsonWriter) value(v reflect.Value, depth int) error {
	if w.b.Len() > w.limit || depth > templateMaxDepth {
		return errLimit
	}
	if !v.IsValid() {
		w.b.WriteString("null")
		return nil
	}
	if v.CanInterface() {
		switch x := v.Interface().(type) {
		case *exec.Value:
			return w.value(x.Val, depth)
		case *exec.Dict:
			return w.dict(x, depth)
		}
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		return w.value(v.Elem(), depth)
	case reflect.String:
		w.text(v.String())
	case reflect.Slice, reflect.Array:
		return w.items('[', ']', v.Len(), depth, func(i int) error { return w.value(v.Index(i), depth+1) })
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return w.items('{', '}', len(keys), depth, func(i int) error {
			w.text(fmt.Sprint(keys[i]))
			w.b.WriteString(": ")
			return w.value(v.MapIndex(keys[i]), depth+1)
		})
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		fmt.Fprint(&w.b, v.Interface())
	default:
		return fmt.Errorf("a value of kind %s has no JSON form", v.Kind())
	}
	return nil
}

func (w *jsonWriter) dict(d *exec.Dict, depth int) error {
	return w.items('{', '}', len(d.Pairs), depth, func(i int) error {
		w.text(d.Pairs[i].Key.String())
		w.b.WriteString(": ")
		return w.value(d.Pairs[i].Value.Val, depth+1)
	})
}

func (w *jsonWriter) items(open, closing byte, n, depth int, item func(i int) error) error {
	w.b.WriteByte(open)
	for i := range n {
		if i > 0 {
			w.b.WriteByte(',')
			if w.indent < 0 {
				w.b.WriteByte(' ')
			}
		}
		w.newline(depth + 1)
		if err := item(i); err != nil {
			return err
		}
	}
	if n > 0 {
		w.newline(depth)
	}
	w.b.WriteByte(closing)
	return nil
}

func (w *jsonWriter) newline(depth int) {
	if w.indent >= 0 {
		w.b.WriteByte('\n')
		w.b.WriteString(strings.Repeat(" ", w.indent*depth))
	}
}

// text writes a JSON string as Python does: only quotes, backslashes and
// control characters are escaped.
func (w *jsonWriter) text(s string) {
	w.b.WriteByte('"')
	for _, r := range s {
		switch short := strings.IndexRune("\"\\\n\r\t\f\b", r); {
		case short >= 0:
			w.b.WriteByte('\\')
			w.b.WriteByte("\"\\nrtfb"[short])
		case r < 0x20:
			fmt.Fprintf(&w.b, "\\u%04x", r)
		default:
			w.b.WriteRune(r)
		}
	}
	w.b.WriteByte('"')
}
