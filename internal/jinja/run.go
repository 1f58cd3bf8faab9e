package jinja

import (
	"fmt"
	"strings"
	"time"
)

// Limits bounds one rendering.
type Limits struct {
	Output int              // bytes of the output and of any value; 0 = 4 MiB
	Work   int              // steps, and bytes and items that they handle; 0 = 64 Mi
	Time   time.Duration    // 0 = no limit
	Now    func() time.Time // the clock of strftime_now and of Time; nil = the machine's
}

const (
	defaultOutput = 4 << 20
	defaultWork   = 64 << 20
	maxRange      = 100_000 // jinja2's MAX_RANGE
	maxCalls      = 64      // macros and recursive loops in one another
)

func limitError(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrLimit)
}

// run is one rendering; it belongs to one goroutine. Its methods are the language: a method for each kind
// of expression, statement, operator and filter, all charged to one limit.
type run struct {
	limits   Limits
	work     int
	untilNow int // work until the clock is looked at
	deadline time.Time
	calls    int
	out      *strings.Builder
}

// Render writes the template with the given variables. Errors are *Raised, wrap ErrLimit, or say what the template did wrong.
func (t *Template) Render(vars *Dict, limits Limits) (text string, err error) {
	if limits.Output == 0 {
		limits.Output = defaultOutput
	}
	if limits.Work == 0 {
		limits.Work = defaultWork
	}
	if limits.Now == nil {
		limits.Now = time.Now
	}
	r := &run{limits: limits, work: limits.Work, out: &strings.Builder{}}
	if limits.Time > 0 {
		r.deadline = limits.Now().Add(limits.Time)
	}
	defer caught(&err)
	root := &scope{vars: map[string]any{}}
	for i, k := range vars.keys {
		if name, ok := k.(string); ok {
			root.vars[name] = vars.values[i]
		}
	}
	r.statements(t.body, root.child(t.missing...))
	return r.out.String(), nil
}

func (r *run) limit(format string, args ...any) { panic(thrown{limitError(format, args...)}) }

// charge adds n steps, bytes or items to the work done, and looks at the clock now and then.
func (r *run) charge(n int) {
	if r.work -= n; n < 0 || r.work < 0 {
		r.limit("more than %d steps and bytes handled", r.limits.Work)
	}
	if r.untilNow -= n; r.untilNow < 0 && !r.deadline.IsZero() {
		r.untilNow = 4096
		if r.limits.Now().After(r.deadline) {
			r.limit("no end after %v: time limit", r.limits.Time)
		}
	}
}

// fits fails where text of n bytes would be too long.
func (r *run) fits(n int) {
	if n < 0 || n > r.limits.Output {
		r.limit("a value of %d bytes, at most %d", n, r.limits.Output)
	}
}

// made accounts for a new text.
func (r *run) made(s string) string {
	r.fits(len(s))
	r.charge(len(s))
	return s
}

// newList makes a list and accounts for it.
func (r *run) newList(items []any) *List {
	r.fits(16 * len(items))
	r.charge(16 * len(items))
	return &List{Items: items}
}

// generator makes a list that is computed when it is read, once; name is that of Python's function.
func (r *run) generator(name string, items func() []any) *List {
	r.charge(16)
	return &List{kind: kindGenerator, name: name, later: items}
}

func (r *run) write(s string) {
	r.fits(r.out.Len() + len(s))
	r.charge(len(s))
	r.out.WriteString(s)
}

// captured runs f with an output of its own.
func (r *run) captured(f func()) string {
	around := r.out
	r.out = &strings.Builder{}
	f()
	s := r.out.String()
	r.out = around
	return s
}

// enter counts a call of a macro or recursive loop; leave with the returned function.
func (r *run) enter() func() {
	if r.calls++; r.calls > maxCalls {
		r.limit("macros and recursive loops nest deeper than %d", maxCalls)
	}
	return func() { r.calls-- }
}

// scope is where names are looked up: its own, then those around it.
type scope struct {
	vars   map[string]any
	around *scope
}

// child is a scope within s in which some names are undefined until they are set.
func (s *scope) child(missing ...string) *scope {
	c := &scope{around: s}
	for _, name := range missing {
		c.set(name, &undefined{pythonQuote(name) + " is undefined"})
	}
	return c
}

func (s *scope) set(name string, v any) {
	if s.vars == nil {
		s.vars = map[string]any{}
	}
	s.vars[name] = v
}

func (s *scope) get(name string) any {
	for at := s; at != nil; at = at.around {
		if v, ok := at.vars[name]; ok {
			return v
		}
	}
	if f, ok := globals[name]; ok {
		return f
	}
	return &undefined{pythonQuote(name) + " is undefined"}
}
