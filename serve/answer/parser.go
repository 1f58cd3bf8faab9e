package answer

import (
	"iter"
	"runtime"
	"slices"
	"strings"
)

// Parser reads one answer. It is not for use by several goroutines at once.
type Parser struct {
	next func() ([]Event, bool)
	stop func()
	in   *input
	p    *parser
}

// input is the piece that the parser has not read yet.
type input struct {
	piece []byte
	ended bool
}

// parser is what reads: it runs as a coroutine that waits where a piece ends.
type parser struct {
	r       reader
	form    Form
	tools   []Tool
	out     events
	calls   int      // that were begun
	unknown []string // tools that were called and not given

	answer, thought side
	marked          bool // a mark has been read since the last text of the answer
	broken          bool // a call broke its form: its closing mark may still follow
	known           [2]*marks
	inside          *ThoughtMarks // the thought that is being read
	awaited         string        // the tag that ends the one which the answer began with
}

// side is the text of the answer, or of the thoughts.
type side struct {
	kind  Kind
	wrote bool
	space []byte // white space that is written when text follows
}

// Parser reads an answer to a prompt, of which tail is the end (as much as the form's longest mark, at least); with tools that
// may be called. Without tools the marks of calls are text.
func (f Form) Parser(tools []Tool, promptTail string) *Parser {
	in := &input{}
	p := &parser{form: f, tools: slices.Clone(tools), answer: side{kind: Text}, thought: side{kind: Thought}}
	outer := &Parser{in: in, p: p}
	outer.next, outer.stop = iter.Pull(func(yield func([]Event) bool) {
		p.r = reader{keep: -1, more: func() ([]byte, bool) {
			for len(in.piece) == 0 && !in.ended {
				if !yield(p.out.take()) {
					in.ended = true // the parser was dropped
				}
			}
			piece := in.piece
			in.piece = nil
			return piece, len(piece) > 0
		}}
		p.read(promptTail)
		yield(p.out.take())
	})
	runtime.AddCleanup(outer, func(stop func()) { stop() }, outer.stop)
	return outer
}

// Push adds text and returns what is known since the last call: neighbouring events of one kind and index belong together.
func (p *Parser) Push(text string) []Event {
	if text == "" || p.in.ended {
		return nil
	}
	p.in.piece = []byte(text)
	all, _ := p.next()
	return all
}

// End ends the text and returns what was held back. A second call returns nothing.
func (p *Parser) End() []Event {
	if p.in.ended {
		return nil
	}
	p.in.ended = true
	all, _ := p.next()
	p.stop()
	return all
}

// CloseThought is the text that ends the thought that the text so far is in; "" outside of thoughts. Where a budget of thinking
// is used up, a server has the model read it as if it had written it, and pushes it.
func (p *Parser) CloseThought() string {
	if !p.in.ended {
		p.next() // so far as the prompt opens one
	}
	if p.p.inside == nil {
		return ""
	}
	return p.p.inside.Closing
}

// read reads the whole answer.
func (p *parser) read(promptTail string) {
	if p.form.layout != nil {
		p.form.layout.read(p, promptTail)
		return
	}
	if t := p.form.insideThought(promptTail); t != nil {
		p.think(t)
	}
	if open := p.form.prompted; open != "" && strings.HasSuffix(promptTail, open) {
		p.prompt(open)
	}
	p.content(nil)
	p.answer.end(p)
}

// prompt goes on behind a mark that the prompt has begun.
func (p *parser) prompt(open string) {
	for _, m := range p.form.dropped {
		if strings.HasPrefix(m, open) && p.r.take(m[len(open):]) {
			p.mark()
			return
		}
	}
	if len(p.tools) > 0 {
		p.calling(open)
	}
}

// content reads the answer until one of some marks, which it returns, or to the end.
func (p *parser) content(stops []string) string {
	for {
		if p.bare() {
			continue
		}
		m := p.r.scan(p.marks(stops), p.text)
		switch t := p.form.thoughtOf(m); {
		case m == "" || slices.Contains(stops, m):
			return m
		case t != nil && m == t.Open && (t.Anywhere || p.fresh()):
			p.mark()
			p.think(t)
		case t != nil && m == t.Close && (t.Anywhere || p.fresh()):
			p.mark()
		case slices.Contains(p.form.dropped, m) && p.drops(m):
			p.mark()
		case p.broken && slices.Contains(p.closers(), m):
			p.mark()
			p.broken = false
		case slices.Contains(p.form.Ends, m) && p.last():
			p.mark()
		default:
			if !p.calling(m) {
				p.text([]byte(m))
			}
		}
	}
}

// drops says whether a mark that says nothing is no text: one that is no control token only around the answer.
func (p *parser) drops(m string) bool {
	switch {
	case isControl(m), p.last():
	case m == p.awaited:
		p.awaited = ""
	case p.fresh() && strings.HasPrefix(m, "<"):
		p.awaited = "</" + m[1:]
	default:
		return false
	}
	return true
}

// marks are those to look for. A parser has one list of stops, or none.
func (p *parser) marks(stops []string) *marks {
	i := 0
	if p.broken {
		i = 1
	}
	if p.known[i] == nil {
		p.known[i] = newMarks(p.allMarks(stops)...)
	}
	return p.known[i]
}

func (p *parser) allMarks(stops []string) []string {
	all := slices.Concat(stops, p.form.dropped, p.form.Ends)
	if p.form.layout == nil {
		for _, t := range p.form.Thoughts {
			all = append(all, t.Open, t.Close)
		}
	}
	if len(p.tools) > 0 {
		for _, c := range p.form.calls {
			all = append(all, c.openers()...)
		}
	}
	if p.broken {
		all = append(all, p.closers()...)
	}
	return all
}

func (p *parser) closers() (all []string) {
	for _, c := range p.form.calls {
		all = append(all, c.closers()...)
	}
	return all
}

// last says whether nothing but white space follows.
func (p *parser) last() bool {
	_, more := p.r.at(p.r.spaces(0))
	return !more
}

// calling reads calls behind an opening mark; false: it is text.
func (p *parser) calling(m string) bool {
	for _, c := range p.form.calls {
		if slices.Contains(c.openers(), m) && p.attempt(c, m) {
			return true
		}
	}
	return false
}

// attempt reads a call; where there is none, what was read is read again as something else.
func (p *parser) attempt(c caller, opener string) bool {
	p.r.keep = p.r.pos
	if !c.read(p, opener) {
		p.r.pos, p.r.keep = p.r.keep, -1
		return false
	}
	p.r.keep = -1
	p.mark()
	for n := p.r.spaces(0); ; n = p.r.spaces(0) {
		rest := slices.IndexFunc(c.closers(), func(close string) bool { return p.r.has(close, n) })
		if rest < 0 {
			return true
		}
		p.r.pos += n + len(c.closers()[rest])
		p.broken = false
	}
}

// bare reads a call that has no mark, where an answer begins.
func (p *parser) bare() bool {
	if len(p.tools) == 0 || !p.fresh() || p.answer.wrote {
		return false
	}
	for _, c := range p.form.calls {
		if len(c.openers()) == 0 && p.attempt(c, "") {
			return true
		}
	}
	return false
}

// think reads a thought.
func (p *parser) think(t *ThoughtMarks) {
	p.beginThought(t)
	if p.r.take(t.Open) { // the prompt has opened it, and the model too
		p.r.space()
	}
	all := slices.Clone(p.form.dropped)
	if len(p.tools) > 0 {
		for _, c := range p.form.calls {
			all = append(all, c.openers()...)
		}
	}
	to := newMarks(append(slices.DeleteFunc(all, func(m string) bool { return !isControl(m) }), t.Close)...)
	for {
		m := p.r.scan(to, p.thinking)
		if m == "" || m == t.Close || p.calling(m) { // whoever calls has finished thinking
			break
		}
		if !slices.Contains(p.form.dropped, m) {
			p.thinking([]byte(m))
		}
	}
	p.endThought()
	p.mark()
}

// beginThought goes to a thought's text. Two thoughts stand on lines of their own.
func (p *parser) beginThought(t *ThoughtMarks) {
	p.inside = t
	p.r.space()
	if p.thought.wrote {
		p.thought.space = []byte("\n")
	}
}

func (p *parser) endThought() { p.inside, p.thought.space = nil, nil }

// text is more of the answer.
func (p *parser) text(text []byte) { p.answer.add(p, text) }

// thinking is more of the thoughts.
func (p *parser) thinking(text []byte) { p.thought.add(p, text) }

// fresh says whether no text has come since the last mark.
func (p *parser) fresh() bool { return p.marked || !p.answer.wrote }

// mark says that a mark of the form was read. White space before it belongs to it, but between two parts of the answer.
func (p *parser) mark() {
	p.marked = true
	if !p.answer.wrote {
		p.answer.space = nil
	}
}

// add writes text; white space is written with the text that follows it.
func (s *side) add(p *parser, text []byte) {
	text, space := trimSpace(text)
	if len(text) > 0 {
		if s.wrote || !p.marked || s.kind == Thought {
			p.out.add(s.kind, 0, s.space)
		} else {
			for len(text) > 0 && isSpace(text[0]) {
				text = text[1:]
			}
		}
		p.out.add(s.kind, 0, text)
		s.wrote, s.space = true, nil
		if s.kind == Text {
			p.marked = false
		}
	}
	s.space = append(s.space, space...)
}

// end writes the white space that an answer ends with, unless it belongs to a mark.
func (s *side) end(p *parser) {
	if !p.marked {
		p.out.add(s.kind, 0, s.space)
	}
	s.space = nil
}
