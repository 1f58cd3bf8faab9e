package serve

import (
	"slices"
	"strings"

	"terrace/serve/answer"
)

// part is a piece of a whole answer: a thought, text, or a call.
type part struct {
	kind answer.Kind // Thought, Text or CallStart
	text string
	call Call
}

// parts are an answer's pieces, in the order in which the model wrote them.
type parts struct {
	list    []part
	problem string // what is wrong with a call; "" = nothing
}

// partsOf splits the text of a whole answer.
func partsOf(p *answer.Parser, text string) *parts {
	all := &parts{}
	for _, e := range append(p.Push(text), p.End()...) {
		all.add(e)
	}
	return all
}

func (p *parts) add(e answer.Event) {
	switch e.Kind {
	case answer.Thought, answer.Text:
		if n := len(p.list); n == 0 || p.list[n-1].kind != e.Kind {
			p.list = append(p.list, part{kind: e.Kind})
		}
		p.list[len(p.list)-1].text += e.Text
	case answer.CallStart:
		p.list = append(p.list, part{kind: answer.CallStart, call: Call{ID: NewCallID(), Name: e.Name}})
	case answer.CallArguments:
		p.list[len(p.list)-1].call.Arguments += e.Text
	case answer.Problem:
		p.problem = e.Text
	}
}

// text is all of the answer's text, or of its thoughts.
func (p *parts) text(kind answer.Kind) string {
	var b strings.Builder
	for _, x := range p.list {
		if x.kind == kind {
			b.WriteString(x.text)
		}
	}
	return b.String()
}

// calls are the answer's calls.
func (p *parts) calls() (calls []Call) {
	for _, x := range p.list {
		if x.kind == answer.CallStart {
			calls = append(calls, x.call)
		}
	}
	return calls
}

// parser reads one answer to a conversation. Where nothing is to be separated, all of it is text.
func (s *Server) parser(c *conversation) *answer.Parser {
	form := c.tools.form
	if s.o.Reasoning == ReasoningNone {
		form.Thoughts = nil
	}
	return form.Parser(c.answerTools(), c.tail)
}

// answerTools are those that an answer may call.
func (c *conversation) answerTools() []answer.Tool {
	if !c.tools.active() {
		return nil
	}
	return c.tools.answers("")
}

// ask has a request ask for an answer to a conversation, whose prompt is rendered.
func (s *Server) ask(r *Request, c *conversation, ids []int) (err error) {
	r.Prompts, r.shown = [][]int{ids}, s.constraints.marked.shown
	b := c.budget
	if b == nil {
		b = &budgetFields{}
	}
	r.thought, err = b.bound(s, c, c.thinking, r.MaxTokens)
	return err
}

// answers are the tools as package answer knows them: those that choice lets be called, "" is all.
func (u *toolUse) answers(choice string) (list []answer.Tool) {
	for _, t := range u.tools {
		if choice == "" || choice == "required" || choice == "="+t.Name {
			list = append(list, answer.Tool{Name: t.Name, Schema: slices.Clone(t.Parameters)})
		}
	}
	return list
}

// chunksOf are the parts of an event; the finish reason stands in one of its own.
func chunksOf(p *answer.Parser, e Event) []answer.Event {
	events := p.Push(e.Text)
	if e.Finish == "" {
		return events
	}
	if events = append(events, p.End()...); len(events) > 0 {
		events = append(events, answer.Event{Kind: answer.Text})
	}
	return events
}
