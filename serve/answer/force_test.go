package answer

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"terrace/grammar"
)

// forcedTools have arguments of every kind.
var forcedTools = []Tool{
	{"f", []byte(`{"type":"object","properties":{
		"x":{"type":"integer","minimum":1},"s":{"type":"string"},"u":{"type":"string","enum":["a b","c"]},
		"l":{"type":"array","items":{"type":"integer"},"maxItems":2},"o":{"type":"object","properties":{"b":{"type":"boolean"}},"required":["b"],"additionalProperties":false},
		"r":{"$ref":"#/$defs/r"}},"required":["x","u"],"$defs":{"r":{"type":"boolean"}}}`)},
	{"get_time", []byte(`{"type":"object","properties":{}}`)},
}

// vocabulary is all bytes, and what ends a form's thoughts and values.
func vocabulary(f Form) (*grammar.Vocabulary, [][]byte) {
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	for _, m := range append(inner(f.calls[0]), f.Thoughts[0].Close) {
		tokens = append(tokens, []byte(m))
	}
	return grammar.NewVocabulary(append(tokens, nil), []int{len(tokens)}), tokens
}

// walk draws a text of a grammar, mostly marks and what else ends things; "" where it did not end.
func walk(t *testing.T, rng *rand.Rand, m *grammar.Machine, tokens [][]byte) string {
	t.Helper()
	s, text := m.Start(), ""
	for range 1500 {
		if s.CanEnd() && (s.Ended() || rng.IntN(3) == 0) {
			return text
		}
		mask, err := s.Mask()
		if err != nil {
			t.Fatal(err)
		}
		var can, ends []int
		for id, b := range tokens {
			if mask[id>>6]>>(id&63)&1 == 0 {
				continue
			}
			can = append(can, id)
			if len(b) > 1 || strings.IndexByte(`"]},:)[(aent1 =>`, b[0]) >= 0 {
				ends = append(ends, id)
			}
		}
		if len(can) == 0 {
			t.Fatalf("%q: a dead end", text)
		}
		id := can[rng.IntN(len(can))]
		if n := len(ends); n > 0 && rng.IntN(8) > 0 {
			id = ends[n-1-rng.IntN(1+rng.IntN(n))] // marks come last
		}
		if err := s.Accept(id); err != nil {
			t.Fatal(err)
		}
		text += string(tokens[id])
	}
	return ""
}

// TestForcedCalls: a text that a form's grammar allows is one valid call, and nothing else.
func TestForcedCalls(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	schemas := map[string]*jsonschema.Schema{}
	for _, tool := range forcedTools {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(tool.Schema)))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(tool.Name, doc); err != nil {
			t.Fatal(err)
		}
		schemas[tool.Name] = c.MustCompile(tool.Name)
	}
	walks := 8
	if testing.Short() {
		walks = 3
	}
	for _, f := range allForms() {
		t.Run(f.Name, func(t *testing.T) {
			v, tokens := vocabulary(f)
			for _, prompt := range []string{"", f.Thoughts[0].Open} {
				g, err := f.Grammar(forcedTools, prompt)
				if err != nil {
					t.Fatal(err)
				}
				m, err := grammar.NewMachine(g, v)
				if err != nil {
					t.Fatal(err)
				}
				ended := 0
				for range walks {
					text := walk(t, rng, m, tokens)
					if text == "" {
						continue
					}
					ended++
					got := read(t, readAll(f, forcedTools, prompt, text))
					if len(got.calls) != 1 || strings.TrimSpace(got.text) != "" || len(got.problems) > 0 || prompt == "" && got.thought != "" {
						t.Fatalf("behind %q, %q: %s", prompt, text, got)
					}
					doc, err := jsonschema.UnmarshalJSON(strings.NewReader(got.calls[0].arguments))
					if err != nil {
						t.Fatalf("%q: %s: %v", text, got, err)
					}
					if err := schemas[got.calls[0].name].Validate(doc); err != nil {
						t.Fatalf("%q: %s: %v", text, got, err)
					}
				}
				if ended == 0 {
					t.Errorf("no text behind %q ended", prompt)
				}
			}
		})
	}
}

// TestForcedExamples: the table's example of each form is what its grammar allows, and what its parser reads.
func TestForcedExamples(t *testing.T) {
	tools := []Tool{{"f", []byte(`{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}`)}}
	differ := map[string]string{
		"mistral": "shows two forms", "cohere": "has an id and line ends", "command-r": "has line ends", "solar": "has an id", "mcp": "has a server's name",
		"gigachat3": "has line ends before the role",
	}
	for _, row := range append(families, plainFamily) {
		f := row.of("")
		v, _ := vocabulary(f)
		got := read(t, readAll(f, tools, "", row.example))
		if row.name != "mistral" && (len(got.calls) != 1 || canonical(t, got.calls[0].arguments) != `{"x":1}` || got.text != "") {
			t.Errorf("%s: %q: %s", row.name, row.example, got)
		}
		g, err := f.Grammar(tools, "")
		if err != nil {
			t.Fatal(err)
		}
		m, err := grammar.NewMachine(g, v)
		if err != nil {
			t.Fatal(err)
		}
		s := m.Start()
		end := strings.TrimSuffix(row.example, "<|call|>")
		if err := s.AcceptText([]byte(end)); (err != nil || !s.CanEnd()) && differ[row.name] == "" {
			t.Errorf("%s: the grammar does not allow %q: %v", row.name, end, err)
		}
	}
}
