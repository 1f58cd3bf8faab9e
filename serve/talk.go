package serve

import (
	"context"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
	"terrace/serve/answer"
)

// Chat is a conversation as a program of this process has it; the APIs have theirs as JSON.
type Chat struct {
	Messages []Message
	Tools    []Tool
	Choice   string // "" or auto: the model decides; none; required: it calls one; else the name of the tool that it calls
	Effort   string // of thought: none, minimal, low, medium, high, xhigh or max; "" = as the template has it
	Thought  int    // tokens of a thought at most; 0 = any number
}

// Message is one of a Chat.
type Message struct {
	Role    string // system, developer, user, assistant or tool
	Content string
	Thought string // of the assistant, before it answered
	Calls   []Call // of the assistant
	CallID  string // of a tool: the ID of the call that Content answers
}

// Tool is a function that the model may call.
type Tool struct {
	Name, Description string
	Parameters        []byte // a JSON schema; nil = any object
}

var roles = []string{"system", "developer", "user", "assistant", "tool"}

// Ask has a request ask a server for the next message of the conversation, by the model's template. It returns what splits the events of the
// answer, in their order, into thoughts, text and calls. Errors are *Error; of a constraint beside a tool that is forced too.
func (c *Chat) Ask(ctx context.Context, s *Server, r *Request) (split func(Event) []answer.Event, err error) {
	talk, err := c.conversation(s)
	if err != nil {
		return nil, err
	}
	ids, err := s.encodeChat(ctx, talk)
	if err != nil {
		return nil, err
	}
	if err := talk.tools.constrain(ctx, s, r, talk.tail); err != nil {
		return nil, err
	}
	if err := s.ask(r, talk, ids); err != nil {
		return nil, err
	}
	p := s.parser(talk)
	return func(e Event) []answer.Event { return chunksOf(p, e) }, nil
}

// conversation is the chat on its way to a server's template.
func (c *Chat) conversation(s *Server) (*conversation, error) {
	if len(c.Messages) == 0 {
		return nil, badField("messages", "want at least one")
	}
	var tools []tool
	for i, t := range c.Tools {
		if len(t.Parameters) > 0 && !jsontext.Value(t.Parameters).IsValid() {
			return nil, badField("tools", "tool %d: parameters: want a JSON schema", i)
		}
		tools = append(tools, newTool(t.Name, &t.Description, jsontext.Value(t.Parameters)))
	}
	choice := c.Choice
	switch choice {
	case "":
		choice = "auto"
	case "auto", "none", "required":
	default:
		choice = "=" + choice
	}
	use, err := s.newToolUse(tools, choice)
	if err != nil {
		return nil, err
	}
	talk := &conversation{tools: use, fields: &templateFields{}}
	if c.Effort != "" {
		talk.fields.ReasoningEffort = &c.Effort
	}
	if c.Thought < 0 {
		return nil, badField("thought", "%d tokens, want 0 or more", c.Thought)
	} else if c.Thought > 0 {
		talk.thinking = &c.Thought
	}
	for i := range c.Messages {
		t, err := c.Messages[i].turn(i)
		if err != nil {
			return nil, err
		}
		talk.turns = append(talk.turns, t)
	}
	return talk, talk.fields.check()
}

// turn is the message as the template takes it.
func (m *Message) turn(i int) (*chatTurn, error) {
	if !slices.Contains(roles, m.Role) {
		return nil, badField("messages", "message %d has role %.40q: want one of %s", i, m.Role, strings.Join(roles, ", "))
	}
	if m.Role != "assistant" && (m.Thought != "" || len(m.Calls) > 0) || m.Role != "tool" && m.CallID != "" {
		return nil, badField("messages", "message %d of role %s: thoughts and calls are the assistant's, the ID of a call is a tool's", i, m.Role)
	}
	t := (&chatTurn{}).set("role", quote(m.Role))
	if m.Content != "" || len(m.Calls) == 0 {
		t.set("content", quote(m.Content))
	}
	if m.CallID != "" {
		t.set("tool_call_id", quote(m.CallID))
	}
	for _, c := range m.Calls {
		if a := jsontext.Value(c.Arguments); c.Name == "" || a.Kind() != '{' || !a.IsValid() {
			return nil, badField("messages", "message %d: a call of %.40q: want a name, and arguments that are a JSON object", i, c.Name)
		}
	}
	if len(m.Calls) > 0 {
		t.call(m.Calls...)
	}
	return t.think(m.Thought), nil
}

// NewMachine is the automaton of a grammar over the tokens of a server's model, what Request.Machine takes: those of the same key share one, so a key
// says all that compile reads. Errors of the grammar are *Error.
func NewMachine(ctx context.Context, s *Server, key string, compile func() (*grammar.Grammar, error)) (*grammar.Machine, error) {
	return s.machine(ctx, "format", key, compile)
}

// NewCallID is the ID of a call.
func NewCallID() string { return "call_" + newID() }
