package answer

import (
	"slices"
	"strings"

	"terrace/grammar"
)

// namedCalls are a name and a JSON object of arguments, with marks around both.
type namedCalls struct {
	sections []string // marks that may stand before the first call
	open     []string
	close    []string // of calls and sections, and what stands behind the arguments
	head     func(r *reader, opener string) (name string, ok bool)
	before   func(name string) string // a call as it is written, to the arguments
	after    string
	inner    []string // marks inside a call
}

func (f *namedCalls) openers() []string { return slices.Concat(f.sections, f.open) }
func (f *namedCalls) closers() []string { return f.close }

func (f *namedCalls) read(p *parser, opener string) bool {
	r := &p.r
	if !slices.Contains(f.open, opener) {
		r.space()
		if opener = r.takeAny(f.open); opener == "" {
			return false
		}
	}
	name, ok := f.head(r, opener)
	if !ok {
		return false
	}
	t := p.tool(name)
	if t == nil {
		return false
	}
	r.space()
	return p.jsonArguments(t)
}

func (f *namedCalls) write(w *writer, t *Tool) *grammar.Expr {
	return grammar.Seq(grammar.Literal(strings.TrimPrefix(f.before(t.Name), w.prompted)), w.arguments(t), grammar.Literal(f.after))
}
