package answer

import "terrace/grammar"

// gpt-oss's harmony: messages in the channels analysis (thought), commentary (calls, and text before them) and final, as
// openai/harmony's description of the format defines them. The recipient functions.NAME makes a message a call.
var harmonyFamily = family{
	name: "harmony", models: "gpt-oss",
	uses:    func(t string) bool { return holds("<|channel|>")(t) && holds("<|message|>")(t) },
	example: "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": 1}<|call|>",
	form: Form{
		Thoughts: []ThoughtMarks{{
			Open: "<|channel|>analysis<|message|>", Close: "<|end|>", Anywhere: true,
			Closing: "<|end|><|start|>assistant<|channel|>final<|message|>", lead: "<|end|><|start|>assistant",
		}},
		calls: []caller{harmonyCalls{}},
		layout: &channels{
			start: "<|start|>", channel: "<|channel|>", message: "<|message|>", constrain: "<|constrain|>",
			ends:      []string{"<|end|>", "<|call|>", "<|return|>"},
			thinks:    func(channel, _ string) bool { return channel == "analysis" },
			jsonCalls: true,
		},
	},
}

// harmonyCalls are messages, which the layout reads.
type harmonyCalls struct{}

func (harmonyCalls) openers() []string         { return nil }
func (harmonyCalls) closers() []string         { return nil }
func (harmonyCalls) read(*parser, string) bool { return false }
func (harmonyCalls) write(w *writer, t *Tool) *grammar.Expr {
	return grammar.Seq(grammar.Literal("<|channel|>commentary to=functions."+t.Name+" <|constrain|>json<|message|>"), w.arguments(t))
}
