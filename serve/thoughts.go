package serve

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/serve/answer"
	"terrace/tokenizer"
)

// budgetFields say how many tokens a model may think, by the names of llama.cpp, vLLM, Qwen, NVIDIA and others; -1 is any number.
type budgetFields struct {
	ThinkingBudgetTokens  *int    `json:"thinking_budget_tokens"`
	ReasoningBudgetTokens *int    `json:"reasoning_budget_tokens"`
	ReasoningBudget       *int    `json:"reasoning_budget"`
	ThinkingBudget        *int    `json:"thinking_budget"`
	ThinkingTokenBudget   *int    `json:"thinking_token_budget"`
	MaxReasoningTokens    *int    `json:"max_reasoning_tokens"`
	MaxThinkingTokens     *int    `json:"max_thinking_tokens"`
	Message               *string `json:"reasoning_budget_message"` // written into a thought that is closed
}

// budgetKwargs are members of chat_template_kwargs that say the same to a template, and to this server.
var budgetKwargs = []string{"thinking_budget", "thinking_token_budget", "thinking_budget_tokens", "reasoning_budget", "max_thinking_tokens", "max_reasoning_tokens"}

// most is the smallest of what is asked for; nil = nothing is.
func (f *budgetFields) most(kwargs jsontext.Value) (least *int, err error) {
	take := func(name string, v *int) {
		if v != nil && *v < -1 && err == nil {
			err = badField(name, "%d, want 0 or more, or -1 for any number", *v)
		}
		if v != nil && (least == nil || *v >= 0 && (*least < 0 || *v < *least)) {
			least = v
		}
	}
	take("thinking_budget_tokens", f.ThinkingBudgetTokens)
	take("reasoning_budget_tokens", f.ReasoningBudgetTokens)
	take("reasoning_budget", f.ReasoningBudget)
	take("thinking_budget", f.ThinkingBudget)
	take("thinking_token_budget", f.ThinkingTokenBudget)
	take("max_reasoning_tokens", f.MaxReasoningTokens)
	take("max_thinking_tokens", f.MaxThinkingTokens)
	if kwargs.Kind() == '{' {
		var members map[string]jsontext.Value
		_ = json.Unmarshal(kwargs, &members)
		for _, name := range budgetKwargs {
			var n int
			if v, ok := members[name]; ok && v.Kind() == '0' {
				if json.Unmarshal(v, &n) != nil {
					return nil, badField("chat_template_kwargs", "%s: %.20s is no whole number", name, v)
				}
				take("chat_template_kwargs."+name, &n)
			}
		}
	}
	return least, err
}

// maxBudgetMessage bounds what is written into a thought.
const maxBudgetMessage = 4096

// Shares of max_tokens that an effort lets a model think where its template does not know efforts, in percent, and the least of
// them in tokens: OpenRouter's.
var effortShares = map[string]int{"minimal": 10, "low": 20, "medium": 50, "high": 80, "xhigh": 95}

const leastEffort = 1024

// bound is how an answer's thoughts are bounded: by what is asked for (own: by a member of thinking or reasoning), else by the effort.
func (f *budgetFields) bound(s *Server, c *conversation, own *int, maxTokens int) (*thoughtBound, error) {
	b := &thoughtBound{form: c.tools.form, tools: c.answerTools(), tail: c.tail, most: -1, tok: s.o.Tokenizer}
	if f.Message != nil {
		if b.say = *f.Message; len(b.say) > maxBudgetMessage {
			return nil, badField("reasoning_budget_message", "%d bytes, want at most %d", len(b.say), maxBudgetMessage)
		}
	}
	n, err := f.most(c.fields.TemplateKwargs)
	effort := ""
	if c.fields.ReasoningEffort != nil {
		effort = *c.fields.ReasoningEffort
	}
	share := effortShares[effort]
	switch {
	case err != nil:
		return nil, err
	case own != nil && (n == nil || *n < 0 || *own < *n):
		b.most = *own
	case n != nil:
		b.most = *n
	case effort == "none" || c.fields.thoughtless:
		b.most = 0
	case share > 0 && maxTokens >= 0 && !strings.Contains(s.o.Tokenizer.Template(), "reasoning_effort"):
		b.most = max(maxTokens*share/100, leastEffort)
	}
	return b, nil
}

// thoughtBound is what tells an answer's thoughts while they are made, and how long they may be.
type thoughtBound struct {
	form  answer.Form
	tools []answer.Tool
	tail  string // of the prompt
	most  int    // tokens; -1 = any number
	say   string // the last words of a thought that is closed
	tok   *tokenizer.Tokenizer
}

// watch begins to read an answer.
func (b *thoughtBound) watch() *thoughtWatch {
	return &thoughtWatch{thoughtBound: b, p: b.form.Parser(slices.Clone(b.tools), b.tail)}
}

// thoughtWatch reads one answer, a token at a time.
type thoughtWatch struct {
	*thoughtBound
	p    *answer.Parser
	used int // tokens of thoughts; those that close them are not counted
	told int // of them, in the accounts
}

// read takes a token's text; forced says that it closes a thought.
func (w *thoughtWatch) read(text string, forced bool) {
	inside := w.p.CloseThought() != ""
	w.p.Push(text)
	if inside && !forced && w.p.CloseThought() != "" {
		w.used++
	}
}

// closing is the tokens that close the thought the answer is in, where it has been long enough; none otherwise.
func (w *thoughtWatch) closing() ([]int, error) {
	if w.most < 0 || w.used < w.most {
		return nil, nil
	}
	text := w.p.CloseThought()
	if text == "" {
		return nil, nil
	}
	return w.tok.Encode(w.say+text, false, true)
}
