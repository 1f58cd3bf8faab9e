package safetensors

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// decoder reads the JSON of a header strictly. The first failure sticks.
type decoder struct {
	text []byte
	at   int
	err  error
	seen []string // members of the tensor being read: a handful, cheaper than a map
}

// maxDepth bounds the nesting of values that nobody reads.
const maxDepth = 16

// maxMembers bounds the members of a tensor's object; the format has three.
const maxMembers = 64

func (d *decoder) failf(format string, args ...any) {
	if d.err == nil {
		d.err = formatErrorf("at byte %d: "+format, append([]any{d.at}, args...)...)
	}
}

// header reads the whole text: an object of tensors and perhaps __metadata__, then nothing but blanks.
func (d *decoder) header(f *File) {
	if d.text[0] != '{' {
		d.failf("invalid start %q, want an object", d.text[0])
		return
	}
	room := min(bytes.Count(d.text, []byte("data_offsets")), len(d.text)/minEntryBytes, maxTensors)
	f.byName, f.entries = make(map[string]int, room), make([]Entry, 0, room)
	d.object(func(name string) {
		if name == "__metadata__" {
			if f.metadata != nil {
				d.failf("duplicate key %q", name)
				return
			}
			f.metadata = d.metadata()
			return
		}
		if _, dup := f.byName[name]; dup {
			d.failf("duplicate tensor %q", name)
			return
		}
		if len(f.entries) >= min(maxTensors, len(d.text)/minEntryBytes+1) {
			d.failf("more than %d tensors", len(f.entries))
			return
		}
		f.byName[name] = len(f.entries)
		f.entries = append(f.entries, d.entry(name))
	})
	if d.skipBlanks(); d.err == nil && d.at != len(d.text) {
		d.failf("something follows the object")
	}
}

// metadata reads an object of strings.
func (d *decoder) metadata() map[string]string {
	m := map[string]string{}
	d.object(func(name string) {
		if _, dup := m[name]; dup {
			d.failf("__metadata__: duplicate key %q", name)
			return
		}
		m[name] = d.string()
	})
	return m
}

// entry reads {"dtype": …, "shape": …, "data_offsets": …}; other members are skipped.
func (d *decoder) entry(name string) Entry {
	e := Entry{Name: name}
	var numbers [maxDims]int
	d.seen = d.seen[:0]
	d.object(func(key string) {
		if len(d.seen) > maxMembers || slices.Contains(d.seen, key) {
			d.failf("tensor %q: duplicate key %q, or more than %d", name, key, maxMembers)
			return
		}
		d.seen = append(d.seen, key)
		switch key {
		case "dtype":
			e.DType = d.string()
		case "shape":
			e.Shape = slices.Clone(d.numbers(numbers[:]))
		case "data_offsets":
			offsets := d.numbers(numbers[:2])
			if d.err == nil && len(offsets) != 2 {
				d.failf("tensor %q: %d data_offsets, want 2", name, len(offsets))
				return
			}
			e.begin, e.end = numbers[0], numbers[1]
		default:
			d.skip(0)
		}
	})
	for _, key := range [...]string{"dtype", "shape", "data_offsets"} {
		if !slices.Contains(d.seen, key) {
			d.failf("tensor %q: %s is missing", name, key)
		}
	}
	return e
}

// object reads { "name": value, … }, calling member at each value.
func (d *decoder) object(member func(name string)) {
	if !d.expect('{') {
		return
	}
	if d.peek() == '}' {
		d.at++
		return
	}
	for d.err == nil {
		name := d.string()
		if !d.expect(':') {
			return
		}
		member(name)
		if d.err != nil || d.more('}') {
			return
		}
	}
}

// more reads the comma or the closing bracket after an item; it is true if there is nothing more to read.
func (d *decoder) more(closing byte) (done bool) {
	switch c := d.peek(); c {
	case ',':
		d.at++
		return false
	case closing:
		d.at++
	default:
		d.failf("invalid %q, want ',' or %q", c, closing)
	}
	return true
}

// numbers reads an array of whole numbers from 0 to the largest int into list, as many as it has room for.
func (d *decoder) numbers(list []int) []int {
	n := 0
	if !d.expect('[') {
		return nil
	}
	if d.peek() == ']' {
		d.at++
		return list[:0]
	}
	for d.err == nil {
		if n == len(list) {
			d.failf("more than %d numbers in a shape or range", len(list))
			return nil
		}
		list[n], n = d.number(), n+1
		if d.err != nil || d.more(']') {
			break
		}
	}
	return list[:n]
}

// number reads a whole number without sign, fraction or exponent.
func (d *decoder) number() int {
	d.skipBlanks()
	start, n := d.at, 0
	for ; d.at < len(d.text) && d.text[d.at] >= '0' && d.text[d.at] <= '9'; d.at++ {
		digit := int(d.text[d.at] - '0')
		if n > (math.MaxInt-digit)/10 {
			d.failf("number overflows in a shape or range")
			return 0
		}
		n = n*10 + digit
	}
	switch {
	case d.at == start:
		d.failf("invalid %q, want a whole number", d.peek())
	case d.text[start] == '0' && d.at > start+1:
		d.failf("number starts with 0")
	case d.at < len(d.text) && (d.text[d.at] == '.' || d.text[d.at]|32 == 'e'):
		d.failf("number is not whole")
	}
	return n
}

func (d *decoder) skipBlanks() {
	for d.at < len(d.text) {
		switch d.text[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

// peek returns the next byte that is not blank, 0 at the end.
func (d *decoder) peek() byte {
	d.skipBlanks()
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

func (d *decoder) expect(c byte) bool {
	if d.err != nil {
		return false
	}
	got := d.peek()
	if d.at == len(d.text) {
		d.failf("the header ends where %q is wanted", c)
		return false
	}
	if got != c {
		d.failf("invalid %q, want %q", got, c)
		return false
	}
	d.at++
	return true
}

// string reads a string; names are short, so it is copied.
func (d *decoder) string() string {
	if !d.expect('"') {
		return ""
	}
	start := d.at
	for ; d.at < len(d.text); d.at++ {
		switch c := d.text[d.at]; {
		case c == '"':
			raw := d.text[start:d.at]
			if !utf8.Valid(raw) {
				d.failf("invalid UTF-8 in a string")
				return ""
			}
			d.at++
			return intern(raw)
		case c == '\\':
			return d.escaped(start)
		case c < 0x20:
			d.failf("invalid control character in a string")
			return ""
		}
	}
	d.failf("the header ends inside a string")
	return ""
}

// intern returns a string; those that every tensor repeats are not made anew.
func intern(raw []byte) string {
	for _, known := range [...]string{"dtype", "shape", "data_offsets", "F32", "F16", "BF16", "I64", "U8"} {
		if string(raw) == known {
			return known
		}
	}
	return string(raw)
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escaped reads the rest of a string that has a backslash at d.at.
func (d *decoder) escaped(start int) string {
	out := append([]byte(nil), d.text[start:d.at]...)
	for d.at < len(d.text) && d.err == nil {
		c := d.text[d.at]
		d.at++
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				d.failf("invalid UTF-8 in a string")
			}
			return string(out)
		case c < 0x20:
			d.failf("invalid control character in a string")
		case c != '\\':
			out = append(out, c)
		default:
			out = d.escape(out)
		}
	}
	d.failf("the header ends inside a string")
	return ""
}

// escape reads what follows a backslash.
func (d *decoder) escape(out []byte) []byte {
	if d.at == len(d.text) {
		return out
	}
	c := d.text[d.at]
	d.at++
	if c != 'u' {
		plain, ok := escapes[c]
		if !ok {
			d.failf("invalid escape \\%c", c)
		}
		return append(out, plain)
	}
	r := d.hex4()
	if utf16.IsSurrogate(r) {
		if d.at+1 < len(d.text) && d.text[d.at] == '\\' && d.text[d.at+1] == 'u' {
			d.at += 2
			r = utf16.DecodeRune(r, d.hex4())
		} else {
			r = utf8.RuneError
		}
		if r == utf8.RuneError {
			d.failf("invalid lone surrogate in a string")
		}
	}
	return utf8.AppendRune(out, r)
}

func (d *decoder) hex4() (r rune) {
	if len(d.text)-d.at < 4 {
		d.failf("the header ends inside an escape")
		return 0
	}
	for _, c := range d.text[d.at : d.at+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|32 >= 'a' && c|32 <= 'f':
			r = r<<4 | rune(c|32-'a'+10)
		default:
			d.failf("invalid hexadecimal digit %q", c)
		}
	}
	d.at += 4
	return r
}

// skip reads a value that nobody asked for.
func (d *decoder) skip(depth int) {
	if depth > maxDepth {
		d.failf("JSON nested deeper than %d", maxDepth)
		return
	}
	switch c := d.peek(); {
	case c == '"':
		d.string()
	case c == '{':
		seen := map[string]bool{}
		d.object(func(name string) {
			if seen[name] {
				d.failf("duplicate key %q", name)
				return
			}
			seen[name] = true
			d.skip(depth + 1)
		})
	case c == '[':
		d.at++
		if d.peek() == ']' {
			d.at++
			return
		}
		for d.err == nil {
			if d.skip(depth + 1); d.err != nil || d.more(']') {
				return
			}
		}
	default:
		d.word()
	}
}

// word skips a number, true, false or null.
func (d *decoder) word() {
	start := d.at
	for ; d.at < len(d.text); d.at++ {
		c := d.text[d.at]
		if !(c >= '0' && c <= '9' || c|32 >= 'a' && c|32 <= 'z' || c == '-' || c == '+' || c == '.') {
			break
		}
	}
	if !json.Valid(d.text[start:d.at]) {
		d.failf("invalid value %.20q", d.text[start:d.at])
	}
}
