package answer

import (
	"bytes"
	"slices"
	"strings"
)

// reader is the text as it comes. It waits for more where what follows cannot be decided yet, so that how a text is cut never
// shows in what is read from it.
type reader struct {
	buf   []byte
	pos   int
	keep  int // from here on the text can be read again; -1: it need not be
	ended bool
	more  func() ([]byte, bool) // the next piece; false at the end
}

// over reads a text that is known whole.
func over(text []byte) *reader { return &reader{buf: text, keep: -1, ended: true} }

// fill waits for more; false: the text has ended.
func (r *reader) fill() bool {
	if r.ended {
		return false
	}
	base := r.pos
	if r.keep >= 0 {
		base = min(base, r.keep)
	}
	if base > len(r.buf)/2 {
		r.buf = r.buf[:copy(r.buf, r.buf[base:])]
		r.pos -= base
		if r.keep >= 0 {
			r.keep -= base
		}
	}
	piece, ok := r.more()
	r.ended = !ok
	r.buf = append(r.buf, piece...)
	return ok
}

// at is the byte i places ahead; false behind the end.
func (r *reader) at(i int) (byte, bool) {
	for r.pos+i >= len(r.buf) {
		if !r.fill() {
			return 0, false
		}
	}
	return r.buf[r.pos+i], true
}

// peek is the next byte; 0 at the end.
func (r *reader) peek() byte {
	b, _ := r.at(0)
	return b
}

// has says whether a text follows, i places ahead.
func (r *reader) has(text string, i int) bool {
	for j := range len(text) {
		if b, ok := r.at(i + j); !ok || b != text[j] {
			return false
		}
	}
	return true
}

// take goes behind a text if it follows.
func (r *reader) take(text string) bool {
	if !r.has(text, 0) {
		return false
	}
	r.pos += len(text)
	return true
}

// takeAny goes behind the first of some texts that follows; "" where none does.
func (r *reader) takeAny(texts []string) string {
	for _, t := range texts {
		if r.take(t) {
			return t
		}
	}
	return ""
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// space goes behind white space.
func (r *reader) space() {
	for b, ok := r.at(0); ok && isSpace(b); b, ok = r.at(0) {
		r.pos++
	}
}

// spaces is how many bytes of white space follow, i places ahead.
func (r *reader) spaces(i int) (n int) {
	for b, ok := r.at(i); ok && isSpace(b); b, ok = r.at(i + n) {
		n++
	}
	return n
}

// maxName bounds names of tools and of arguments, in bytes.
const maxName = 256

// word is what comes before a byte of stop, which stays; false where it is longer than a name, or the text ends.
func (r *reader) word(stop string) (string, bool) {
	for i := range maxName {
		b, ok := r.at(i)
		if !ok {
			return "", false
		}
		if strings.IndexByte(stop, b) >= 0 {
			word := string(r.buf[r.pos : r.pos+i])
			r.pos += i
			return word, true
		}
	}
	return "", false
}

// wordTo is what comes before a text, which is taken.
func (r *reader) wordTo(end string) (string, bool) {
	for i := range maxName {
		if _, ok := r.at(i); !ok {
			return "", false
		}
		if r.has(end, i) {
			word := string(r.buf[r.pos : r.pos+i])
			r.pos += i + len(end)
			return word, true
		}
	}
	return "", false
}

// marks is a set of texts to look for.
type marks struct {
	all   []string // the longest first
	first [256]bool
}

func newMarks(all ...string) *marks {
	m := &marks{}
	for _, text := range all {
		if text != "" && !slices.Contains(m.all, text) {
			m.all, m.first[text[0]] = append(m.all, text), true
		}
	}
	slices.SortStableFunc(m.all, func(a, b string) int { return len(b) - len(a) })
	return m
}

// scan gives text to out until a mark follows, which it takes and returns; "" at the end of the text.
func (r *reader) scan(m *marks, out func([]byte)) string {
	for {
		if _, ok := r.at(0); !ok {
			return ""
		}
		i := slices.IndexFunc(r.buf[r.pos:], func(b byte) bool { return m.first[b] })
		if i < 0 {
			i = len(r.buf) - r.pos
		}
		if i > 0 {
			out(r.buf[r.pos : r.pos+i])
			r.pos += i
			continue
		}
		if mark := r.takeAny(m.all); mark != "" {
			return mark
		}
		out(r.buf[r.pos : r.pos+1])
		r.pos++
	}
}

// trimSpace splits white space off a text's end.
func trimSpace(text []byte) (rest, space []byte) {
	rest = bytes.TrimRight(text, " \n\t\r")
	return rest, text[len(rest):]
}
