package terrace

import (
	"context"
	"iter"

	"terrace/serve"
)

// Message is one of a conversation.
type Message struct {
	Role    string // system, developer, user, assistant or tool
	Content string
	Thought string // of the assistant, before it answered
	Calls   []Call // of the assistant
	CallID  string // of a tool: Call.ID of what Content answers
}

// Call is a call of a tool by the model.
type Call struct {
	ID, Name  string
	Arguments string // a JSON object, by the tool's Parameters
}

// Tool is a function that the model may call.
type Tool struct {
	Name        string // 1 to 64 of a-z, A-Z, 0-9, _, - and .
	Description string
	Parameters  string // JSON schema of the arguments; "" = any object
}

// Chat answers the last of the messages, by the model's template; ErrNoTemplate where it has none. What others than the assistant
// have written is plain text to the model, whatever control tokens it names.
func (m *Model) Chat(ctx context.Context, messages []Message, s Settings) iter.Seq2[Piece, error] {
	return m.answer(ctx, s, func(r *serve.Request) (splitter, error) {
		c := &serve.Chat{Choice: s.Choice, Effort: s.Effort, Thought: s.Thought}
		for _, x := range messages {
			turn := serve.Message{Role: x.Role, Content: x.Content, Thought: x.Thought, CallID: x.CallID}
			for _, call := range x.Calls {
				turn.Calls = append(turn.Calls, serve.Call(call))
			}
			c.Messages = append(c.Messages, turn)
		}
		for _, t := range s.Tools {
			c.Tools = append(c.Tools, serve.Tool{Name: t.Name, Description: t.Description, Parameters: []byte(t.Parameters)})
		}
		return c.Ask(ctx, m.server, r)
	})
}

// Reply is a whole answer of Chat as the message that the conversation goes on with.
func Reply(answer iter.Seq2[Piece, error]) (Message, error) {
	reply := Message{Role: "assistant"}
	for p, err := range answer {
		if err != nil {
			return reply, err
		}
		reply.Content += p.Text
		reply.Thought += p.Thought
		reply.Calls = append(reply.Calls, p.Calls...)
	}
	return reply, nil
}
