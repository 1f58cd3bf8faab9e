package answer

import (
	"slices"
	"strings"
)

// channels is an answer of messages with headers: <|start|>assistant<|channel|>NAME to=RECIPIENT<|message|>…<|end|>. The prompt
// has written the beginning of the first.
type channels struct {
	start, channel, message string
	constrain               string
	ends                    []string
	thinks                  func(channel, to string) bool
	jsonCalls               bool // the text of a message to a function is its arguments
}

func (c *channels) marks() []string {
	return append([]string{c.start, c.channel, c.message, c.constrain}, c.ends...)
}

// isNameByte says whether names of tools may have a byte.
func isNameByte(b byte) bool { return isWord(b) || b == '.' || b == '-' }

// header is what a message says of itself.
type header struct{ channel, to string }

// header reads one: each of its parts at most once, in any order.
func (c *channels) header(r *reader) (h header, ok bool) {
	var kind, constraint string
	if r.take(c.start) {
		r.run(isWord, maxName) // the role
		ok = true
	}
	for {
		r.space()
		switch {
		case r.take(c.message):
			return h, true
		case c.channel != "" && h.channel == "" && r.take(c.channel):
			h.channel = r.run(isWord, maxName)
			ok = h.channel != ""
		case c.constrain != "" && constraint == "" && r.take(c.constrain):
			constraint = r.run(isWord, maxName)
			ok = constraint != ""
		case h.to == "" && r.take("to="):
			h.to = r.run(isNameByte, maxName)
			ok = h.to != ""
		case ok && kind == "": // of the text: json, code
			kind = r.run(isWord, maxName)
			ok = kind != ""
		default:
			return h, false
		}
		if !ok {
			return h, false
		}
	}
}

func (c *channels) read(p *parser, promptTail string) {
	opens := []string{c.start, c.channel, c.message}
	stops := slices.DeleteFunc(append(slices.Clone(opens), c.ends...), func(m string) bool { return m == "" })
	if p.form.insideThought(promptTail) != nil {
		c.thought(p, stops)
	}
	for {
		p.r.keep = p.r.pos
		h, ok := c.header(&p.r)
		if !ok {
			p.r.pos = p.r.keep
		}
		p.r.keep = -1
		if ok {
			p.mark()
			c.body(p, h, stops)
			continue
		}
		if m := p.r.takeAny(stops); m != "" && !slices.Contains(c.ends, m) {
			p.text([]byte(m))
		} else if m != "" {
			p.mark()
			continue
		}
		if !c.after(p, p.content(stops)) {
			break
		}
	}
	p.answer.end(p)
}

// after goes on behind a message: a mark that begins another one is read again. False at the end of the text.
func (c *channels) after(p *parser, m string) bool {
	if m != "" && !slices.Contains(c.ends, m) {
		p.r.pos -= len(m)
	} else {
		p.mark()
	}
	return m != ""
}

// body reads a message.
func (c *channels) body(p *parser, h header, stops []string) {
	name := h.to
	if !slices.ContainsFunc(p.tools, func(t Tool) bool { return t.Name == name }) {
		name = strings.TrimPrefix(name, "functions.")
	}
	switch {
	case c.jsonCalls && name != "" && len(p.tools) > 0:
		p.r.space()
		if t := p.tool(name); t != nil && p.jsonArguments(t) {
			p.mark() // what follows the arguments is text
			c.after(p, p.content(stops))
			return
		}
	case c.thinks(h.channel, h.to):
		c.thought(p, stops)
		return
	}
	c.after(p, p.content(stops))
}

func (c *channels) thought(p *parser, stops []string) {
	p.beginThought(&p.form.Thoughts[0])
	m := p.r.scan(newMarks(stops...), p.thinking)
	p.endThought()
	c.after(p, m)
}
