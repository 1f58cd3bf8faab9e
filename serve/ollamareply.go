package serve

import (
	"errors"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/serve/answer"
)

// ollamaReply is a line of an answer, or all of it.
type ollamaReply struct {
	Model    string         `json:"model"`
	Created  string         `json:"created_at"`
	Message  *ollamaMessage `json:"message,omitzero"`  // of a chat
	Response *string        `json:"response,omitzero"` // of /api/generate, as the next two
	Thinking string         `json:"thinking,omitzero"`
	Done     bool           `json:"done"`
	Reason   string         `json:"done_reason,omitzero"`
	*OllamaCounts
}

// OllamaCounts are times in nanoseconds, and tokens.
type OllamaCounts struct {
	Total      int64 `json:"total_duration"`
	Load       int64 `json:"load_duration"`
	Prompt     int   `json:"prompt_eval_count"`
	PromptTime int64 `json:"prompt_eval_duration"`
	Eval       int   `json:"eval_count"`
	EvalTime   int64 `json:"eval_duration"`
}

// newOllamaLine is a line without text.
func newOllamaLine(model string, chat bool) ollamaReply {
	l := ollamaReply{Model: model, Created: time.Now().UTC().Format(time.RFC3339Nano)}
	if chat {
		l.Message = &ollamaMessage{Role: "assistant"}
	} else {
		l.Response = new(string)
	}
	return l
}

// newOllamaEnd is the last line.
func newOllamaEnd(model string, chat bool, reason string) ollamaReply {
	l := newOllamaLine(model, chat)
	l.Done, l.Reason = true, reason
	return l
}

func writeOllamaError(w http.ResponseWriter, e *Error) {
	_ = writeJSON(w, e.Status, struct {
		Error string `json:"error"`
	}{e.Message})
}

// ollamaWriter turns events into Ollama's JSON.
type ollamaWriter struct {
	name   string
	chat   bool
	parser *answer.Parser // nil: all is text
	call   ollamaCall     // the one that is being written
	args   string
}

// ollamaAnswer makes an answer; talk is nil where the prompt is none of a chat.
func (s ollama) reply(w http.ResponseWriter, r *http.Request, req *Request, talk *conversation, out *ollamaWriter) error {
	if talk != nil {
		out.parser = s.parser(talk)
	}
	reply, err := s.begin(w, r, req)
	if err != nil {
		return err
	}
	defer reply.Close()
	if req.StreamText {
		return out.stream(w, r, reply, req.received)
	}
	events, err := reply.All(r.Context())
	if err != nil {
		return err
	}
	line := newOllamaLine(out.name, out.chat)
	out.add(&line, events[0])
	out.end(&line, events[0], reply, req.received)
	return writeJSON(w, http.StatusOK, line)
}

// add puts what an event says into a line; a call is there once it is whole.
func (o *ollamaWriter) add(line *ollamaReply, e Event) {
	if o.parser == nil {
		*line.Response += e.Text
		return
	}
	list := o.parser.Push(e.Text)
	if e.Finish != "" {
		list = append(list, o.parser.End()...)
	}
	for _, x := range list {
		switch {
		case x.Kind == answer.Text && o.chat:
			line.Message.Content += x.Text
		case x.Kind == answer.Text:
			*line.Response += x.Text
		case x.Kind == answer.Thought && o.chat:
			line.Message.Thinking += x.Text
		case x.Kind == answer.Thought:
			line.Thinking += x.Text
		case x.Kind == answer.CallStart:
			o.call, o.args = ollamaCall{ID: "call_" + newID(), Function: ollamaFunction{Index: x.Index, Name: x.Name}}, ""
		case x.Kind == answer.CallArguments:
			o.args += x.Text
		case x.Kind == answer.CallEnd && jsontext.Value(o.args).IsValid():
			o.call.Function.Arguments = jsontext.Value(o.args)
			line.Message.ToolCalls = append(line.Message.ToolCalls, o.call)
		case x.Kind == answer.Problem && o.chat:
			line.Message.Problem = x.Text
		}
	}
}

// end makes a line the last.
func (o *ollamaWriter) end(line *ollamaReply, e Event, reply *Reply, received time.Time) {
	u, t := reply.Usage(), reply.Timings()
	line.Done, line.Reason = true, string(e.Finish)
	line.OllamaCounts = &OllamaCounts{Total: time.Since(received).Nanoseconds(), Load: 0, Prompt: u.Prompt, PromptTime: t.Prompt.Nanoseconds(), Eval: u.Generated, EvalTime: t.Predicted.Nanoseconds()}
}

// stream writes a line of JSON for each part of the answer.
func (o *ollamaWriter) stream(w http.ResponseWriter, r *http.Request, reply *Reply, received time.Time) error {
	begun := false
	put := func(v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusOK)
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return err
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return errors.Join(errGone, err)
		}
		return nil
	}
	var last Event
	for done := false; !done; {
		events, ended, err := reply.Next(r.Context())
		if err != nil {
			if begun && r.Context().Err() == nil {
				_ = put(struct {
					Error string `json:"error"`
				}{asError(err).Message})
			}
			return err
		}
		for _, e := range events {
			line := newOllamaLine(o.name, o.chat)
			o.add(&line, e)
			if line.says() {
				if err := put(line); err != nil {
					return err
				}
			}
			last = e
		}
		done = ended
	}
	line := newOllamaLine(o.name, o.chat)
	if !begun { // the last line never stands alone: clients may take what is before it
		if err := put(line); err != nil {
			return err
		}
	}
	o.end(&line, last, reply, received)
	return put(line)
}

// says reports whether a line has anything to tell.
func (l *ollamaReply) says() bool {
	if m := l.Message; m != nil {
		return m.Content != "" || m.Thinking != "" || m.ToolCalls != nil || m.Problem != ""
	}
	return *l.Response != "" || l.Thinking != ""
}
