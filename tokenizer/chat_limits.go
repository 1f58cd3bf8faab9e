package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

// Limits of one rendering. A template is a program that came with a model: every
// loop turn, call and output looks at the deadline, every value that an
// expression makes is measured, and after the first limit nothing runs on.
const (
	templateMaxBytes = 64 << 10 // the largest published template is a third of it
	templateMaxDepth = 64       // nesting of blocks, brackets, values, macro calls
	templateMaxChain = 512      // operators, filters and attributes in a row
	renderMaxRange   = 100_000  // length of range()
	renderMaxExtra   = 1 << 20  // output beyond three times the messages' bytes
	renderMaxWork    = 1 << 26  // bytes and values looked at, all told
	renderTimeout    = 800 * time.Millisecond
)

// errLimit is inside every error that a limit makes.
var errLimit = errors.New("limit reached")

// limiter is the account of one rendering; it belongs to one goroutine.
type limiter struct {
	work     int // bytes and values still to look at
	depth    int
	maxBytes int // of any value and of the output
	deadline time.Time
	timeout  time.Duration // until the deadline
	err      error         // the first failure, for good
}

func newLimiter(inputBytes int, timeout time.Duration) *limiter {
	maxBytes := renderMaxExtra + 3*inputBytes
	return &limiter{
		work:     renderMaxWork + 16*inputBytes,
		maxBytes: maxBytes,
		deadline: time.Now().Add(timeout),
		timeout:  timeout,
	}
}

func (l *limiter) fail(format string, args ...any) error {
	if l.err == nil {
		l.err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errLimit)
	}
	return l.err
}

// explain prefers the limit that was hit over what the interpreter made of it.
func (l *limiter) explain(err error) error {
	if l.err != nil {
		return l.err
	}
	return err
}

// step looks at the deadline.
func (l *limiter) step() error {
	if l.err == nil && time.Now().After(l.deadline) {
		return l.fail("no end after %v: time limit", l.timeout)
	}
	return l.err
}

// charge adds n bytes or values to the work done.
func (l *limiter) charge(n int) error {
	if l.err != nil {
		return l.err
	}
	if l.work -= n; l.work < 0 {
		return l.fail("more than %d bytes handled", renderMaxWork)
	}
	return nil
}

// enter and leave count nested macro calls.
func (l *limiter) enter() error {
	if l.depth++; l.depth > templateMaxDepth {
		return l.fail("macro calls nest deeper than %d", templateMaxDepth)
	}
	return l.step()
}

func (l *limiter) leave() { l.depth-- }

// fits fails when text of n bytes would be too long.
func (l *limiter) fits(n int) error {
	if n < 0 || n > l.maxBytes {
		return l.fail("a value of %d bytes, at most %d", n, l.maxBytes)
	}
	return l.charge(n)
}

// measure fails when a value, with all it holds, is too large or too deep, or
// when the time is over.
func (l *limiter) measure(values ...*exec.Value) error {
	for _, v := range values {
		if err := l.step(); err != nil {
			return err
		}
		if v == nil || v.IsError() {
			continue
		}
		left := l.maxBytes
		if err := l.weigh(v.Val, templateMaxDepth, &left); err != nil {
			return err
		}
		if err := l.charge(l.maxBytes - left); err != nil {
			return err
		}
	}
	return l.err
}

// weigh subtracts the weight of v from left: the bytes of strings, 16 for
// everything else, following lists, maps and gonja's own containers.
func (l *limiter) weigh(v reflect.Value, depth int, left *int) error {
	if depth < 0 {
		return l.fail("values nest deeper than %d", templateMaxDepth)
	}
	if *left -= 16; *left < 0 {
		return l.fail("a value of more than %d bytes", l.maxBytes)
	}
	switch v.Kind() {
	case reflect.String:
		*left -= v.Len()
	case reflect.Interface:
		return l.weigh(v.Elem(), depth, left)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := l.weigh(v.Index(i), depth-1, left); err != nil {
				return err
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if err := l.weigh(it.Key(), depth-1, left); err != nil {
				return err
			}
			if err := l.weigh(it.Value(), depth-1, left); err != nil {
				return err
			}
		}
	case reflect.Pointer:
		return l.weighPointer(v, depth, left)
	}
	if *left < 0 {
		return l.fail("a value of more than %d bytes", l.maxBytes)
	}
	return nil
}

func (l *limiter) weighPointer(v reflect.Value, depth int, left *int) error {
	if v.IsNil() || !v.CanInterface() {
		return nil
	}
	switch p := v.Interface().(type) {
	case *exec.Value:
		return l.weigh(p.Val, depth, left)
	case *exec.Dict:
		for _, pair := range p.Pairs {
			if err := l.weighPointer(reflect.ValueOf(pair), depth-1, left); err != nil {
				return err
			}
		}
	case *exec.Pair:
		for _, side := range []*exec.Value{p.Key, p.Value} {
			if side == nil {
				continue
			}
			if err := l.weigh(side.Val, depth, left); err != nil {
				return err
			}
		}
	}
	return nil
}

// cappedWriter stops an output at its limit.
type cappedWriter struct {
	lim     *limiter
	out     io.Writer
	written int
}

// Write implements io.Writer.
func (w *cappedWriter) Write(p []byte) (int, error) {
	if w.written += len(p); w.written > w.lim.maxBytes {
		return 0, w.lim.fail("more than %d bytes of output", w.lim.maxBytes)
	}
	if err := w.lim.charge(len(p)); err != nil {
		return 0, err
	}
	return w.out.Write(p)
}

// checkSource refuses a template whose nesting alone could exhaust the stack
// of a recursive parser.
func checkSource(source string) error {
	if len(source) > templateMaxBytes {
		return fmt.Errorf("%d bytes long, limit %d", len(source), templateMaxBytes)
	}
	depth := 0
	for i := range len(source) {
		switch source[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(depth-1, 0)
		}
		// Text outside of tags may hold brackets too, hence the generous bound.
		if depth > 8*templateMaxDepth {
			return fmt.Errorf("brackets nest deeper than the limit of %d", 8*templateMaxDepth)
		}
	}
	if blocks := strings.Count(source, "{%"); blocks > templateMaxBytes/16 {
		return fmt.Errorf("%d blocks, limit %d", blocks, templateMaxBytes/16)
	}
	return nil
}

// sourceLoader gives gonja the one template there is; a template can load no
// other.
type sourceLoader string

// Read implements loaders.Loader.
func (s sourceLoader) Read(string) (io.Reader, error) { return bytes.NewReader([]byte(s)), nil }

// Resolve implements loaders.Loader.
func (s sourceLoader) Resolve(name string) (string, error) { return name, nil }

// Inherit implements loaders.Loader.
func (s sourceLoader) Inherit(string) (loaders.Loader, error) { return s, nil }
