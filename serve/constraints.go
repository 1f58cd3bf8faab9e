package serve

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
	"terrace/grammar/schema"
)

// constraintFields say what a text may be, by the names of OpenAI, llama.cpp, vLLM and SGLang; one of them at most.
type constraintFields struct {
	ResponseFormat *responseFormat    `json:"response_format"`
	Grammar        *string            `json:"grammar"`     // GBNF
	JSONSchema     jsontext.Value     `json:"json_schema"` // a schema, or one in a string
	Structured     *structuredOutputs `json:"structured_outputs"`
	GuidedJSON     jsontext.Value     `json:"guided_json"`
	GuidedRegex    *string            `json:"guided_regex"`
	GuidedChoice   []string           `json:"guided_choice"`
	GuidedGrammar  *string            `json:"guided_grammar"`
	Regex          *string            `json:"regex"`
	EBNF           *string            `json:"ebnf"`
}

// structuredOutputs is vLLM's.
type structuredOutputs struct {
	JSON       jsontext.Value `json:"json"`
	Regex      *string        `json:"regex"`
	Choice     []string       `json:"choice"`
	Grammar    *string        `json:"grammar"`
	JSONObject *bool          `json:"json_object"`
	Tag        jsontext.Value `json:"structural_tag"`

	Whitespace   *string `json:"whitespace_pattern"`
	Fallback     *bool   `json:"disable_fallback"` // of no effect, as the next two
	NoWhitespace *bool   `json:"disable_any_whitespace"`
	NoAdditional *bool   `json:"disable_additional_properties"`
}

// constraint is what one field asks for.
type constraint struct {
	field   string
	machine func() (*grammar.Machine, error)
}

// constrain fills a request in. What cannot be kept is refused, never left out.
func (f *constraintFields) constrain(ctx context.Context, s *Server, r *Request) error {
	all, err := f.asked(ctx, s)
	if err != nil {
		return err
	}
	for i, c := range all {
		if i > 0 {
			return badField(c.field, "not beside %s", all[0].field)
		}
		if r.Machine, err = c.machine(); err != nil {
			return err
		}
	}
	return nil
}

// asked are the constraints that are given.
func (f *constraintFields) asked(ctx context.Context, s *Server) (all []constraint, err error) {
	add := func(field string, machine func() (*grammar.Machine, error)) {
		all = append(all, constraint{field, machine})
	}
	schemaOf := func(field string, v jsontext.Value) {
		if len(v) == 0 || v.Kind() == 'n' {
			return
		}
		text := v
		var inside string
		if json.Unmarshal(v, &inside) == nil {
			text = jsontext.Value(inside)
		}
		add(field, func() (*grammar.Machine, error) { return s.schemaMachine(ctx, field, text) })
	}
	grammarOf := func(field string, text *string) {
		if text != nil {
			add(field, func() (*grammar.Machine, error) {
				return s.machine(ctx, field, "grammar "+*text, func() (*grammar.Grammar, error) { return grammar.GBNF(*text) })
			})
		}
	}
	regexOf := func(field string, text *string) {
		if text != nil {
			add(field, func() (*grammar.Machine, error) {
				return s.machine(ctx, field, "regex "+*text, func() (*grammar.Grammar, error) { return schema.Regex(*text) })
			})
		}
	}
	choiceOf := func(field string, texts []string) {
		if texts != nil {
			add(field, func() (*grammar.Machine, error) {
				return s.machine(ctx, field, fmt.Sprintf("choice %q", texts), func() (*grammar.Grammar, error) { return schema.Choice(texts) })
			})
		}
	}
	if f.ResponseFormat != nil && f.ResponseFormat.Type != "text" {
		add("response_format", func() (*grammar.Machine, error) { return s.formatMachine(ctx, "response_format", f.ResponseFormat) })
	} else if f.ResponseFormat != nil {
		if _, err := s.formatMachine(ctx, "response_format", f.ResponseFormat); err != nil {
			return nil, err
		}
	}
	grammarOf("grammar", f.Grammar)
	schemaOf("json_schema", f.JSONSchema)
	schemaOf("guided_json", f.GuidedJSON)
	regexOf("guided_regex", f.GuidedRegex)
	choiceOf("guided_choice", f.GuidedChoice)
	grammarOf("guided_grammar", f.GuidedGrammar)
	regexOf("regex", f.Regex)
	grammarOf("ebnf", f.EBNF)
	if o := f.Structured; o != nil {
		if len(o.Tag) > 0 && o.Tag.Kind() != 'n' || o.Whitespace != nil || is(o.NoAdditional) {
			return nil, badField("structured_outputs", "want json, regex, choice, grammar or json_object")
		}
		schemaOf("structured_outputs", o.JSON)
		regexOf("structured_outputs", o.Regex)
		choiceOf("structured_outputs", o.Choice)
		grammarOf("structured_outputs", o.Grammar)
		if is(o.JSONObject) {
			add("structured_outputs", func() (*grammar.Machine, error) { return s.machine(ctx, "structured_outputs", "object", schema.Object) })
		}
	}
	return all, nil
}
