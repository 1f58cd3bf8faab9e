package answer

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/internal/golden"
	"terrace/internal/jinja"
)

// answerCase is a line of the shared cases: what a model of a template writes, and what it means.
type answerCase struct {
	Template, Name, Emit, Content, Reasoning string

	Messages, Tools json.RawMessage
	Calls           [][2]json.RawMessage
}

func (c *answerCase) tools(t *testing.T) (tools []Tool) {
	t.Helper()
	var all []struct {
		Function struct {
			Name       string
			Parameters json.RawMessage
		}
	}
	if c.Tools == nil {
		return nil
	}
	if err := json.Unmarshal(c.Tools, &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		tools = append(tools, Tool{one.Function.Name, jsontext.Value(one.Function.Parameters)})
	}
	return tools
}

// prompt is what the template renders for the case.
func (c *answerCase) prompt(t *testing.T, source string) string {
	t.Helper()
	template, err := jinja.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	vars := jinja.NewDict().Set("add_generation_prompt", true).Set("bos_token", "<s>").Set("eos_token", "</s>")
	for name, of := range map[string]json.RawMessage{"messages": c.Messages, "tools": c.Tools} {
		if of == nil {
			continue
		}
		v, err := jinja.FromJSON(of)
		if err != nil {
			t.Fatal(err)
		}
		vars.Set(name, v)
	}
	text, err := template.Render(vars, jinja.Limits{Now: func() time.Time { return time.Unix(1e9, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// otherwise are answers that mean something else than their cases say: these are what templates write into histories, where
// they do not write what the model has to.
var otherwise = map[string]string{
	"NVIDIA-Nemotron-Nano-v2.jinja text":      "never closes the thought that its prompt opens",
	"NVIDIA-Nemotron-Nano-v2.jinja text_call": "never closes the thought that its prompt opens",
	"openai-gpt-oss-120b.jinja text_call":     "has the answer in the analysis channel, which is for thoughts",
}

// TestCases reads what models of 35 public templates write, whole and in two pieces cut at every byte.
func TestCases(t *testing.T) {
	folder := golden.Shared(t, "data", "thinking")
	for _, c := range golden.Lines[answerCase](t, folder+"/cases.jsonl") {
		t.Run(strings.TrimSuffix(c.Template, ".jinja")+"/"+c.Name, func(t *testing.T) {
			source, err := os.ReadFile(golden.Shared(t, "data", "templates", c.Template))
			if err != nil {
				t.Fatal(err)
			}
			if why := otherwise[c.Template+" "+c.Name]; why != "" {
				t.Skip("the answer " + why)
			}
			form, tools, prompt := FormOf(string(source)), c.tools(t), c.prompt(t, string(source))
			want := result{thought: strings.TrimSpace(c.Reasoning), text: strings.TrimSpace(c.Content)}
			for _, call := range c.Calls {
				want.calls = append(want.calls, oneCall{name: unquote(jsontext.Value(call[0])), arguments: canonical(t, string(call[1]))})
			}
			whole := readAll(form, tools, prompt, c.Emit)
			got := read(t, whole)
			got.thought, got.text = strings.TrimSpace(got.thought), strings.TrimSpace(got.text)
			for i := range got.calls {
				got.calls[i].arguments = canonical(t, got.calls[i].arguments)
			}
			if got.String() != want.String() {
				t.Fatalf("form %s, prompt …%q, text %q:\n got %s\nwant %s", form.Name, prompt[max(0, len(prompt)-30):], c.Emit, got, want)
			}
			for i := range c.Emit {
				if cut := readAll(form, tools, prompt, c.Emit[:i], c.Emit[i:]); !slices.Equal(cut, whole) {
					t.Fatalf("cut at byte %d of %q:\n got %v\nwant %v", i, c.Emit, cut, whole)
				}
			}
		})
	}
}
