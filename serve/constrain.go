package serve

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
	"terrace/grammar/schema"
	"terrace/tokenizer"
)

// maxMachines is how many constraints are kept; each has masks of its own, up to about 30 MB.
const maxMachines = 12

// constraints keeps what texts were constrained to, the latest last, so that equal requests share masks.
type constraints struct {
	mu       sync.Mutex
	words    words // as texts are read
	marked   words // as answers of a model's own form are: with the control tokens that are its marks
	machines map[string]*grammar.Machine
	order    []string
}

// machine is the one of a key; compile makes its grammar where it is new. Errors blame a field.
func (s *Server) machine(ctx context.Context, field, key string, compile func() (*grammar.Grammar, error)) (*grammar.Machine, error) {
	return s.machineOver(ctx, &s.constraints.words, field, key, compile)
}

// words are a vocabulary that is made when it is first needed.
type words struct {
	once  sync.Once
	shown map[int]bool // control tokens that are written by their text
	words *grammar.Vocabulary
}

func (w *words) of(t *tokenizer.Tokenizer) *grammar.Vocabulary {
	w.once.Do(func() { w.words = grammar.NewVocabulary(t.Pieces(w.shown)) })
	return w.words
}

func (s *Server) machineOver(ctx context.Context, over *words, field, key string, compile func() (*grammar.Grammar, error)) (m *grammar.Machine, err error) {
	c := &s.constraints
	c.mu.Lock()
	m, ok := c.machines[key]
	c.mu.Unlock()
	if ok {
		return m, nil
	}
	err = s.busy(ctx, func() error {
		g, err := compile()
		if err != nil {
			return constraintError(field, err)
		}
		if m, err = grammar.NewMachine(g, over.of(s.o.Tokenizer)); err != nil {
			return constraintError(field, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machines == nil {
		c.machines = map[string]*grammar.Machine{}
	}
	if i := slices.Index(c.order, key); i >= 0 { // another request was faster
		return c.machines[key], nil
	}
	if len(c.order) == maxMachines {
		delete(c.machines, c.order[0])
		c.order = c.order[1:]
	}
	c.machines[key], c.order = m, append(c.order, key)
	return m, nil
}

// constraintError is what a client is told of a schema or grammar that cannot be kept.
func constraintError(field string, err error) error {
	for _, kind := range []error{grammar.ErrSyntax, grammar.ErrUnsupported, grammar.ErrEmpty, grammar.ErrTooLarge} {
		if errors.Is(err, kind) {
			return badField(field, "%s", oneLine(err))
		}
	}
	return err
}

func (s *Server) schemaMachine(ctx context.Context, field string, text []byte) (*grammar.Machine, error) {
	return s.machine(ctx, field, "schema "+string(text), func() (*grammar.Grammar, error) { return schema.Compile(text) })
}

// responseFormat is text, any JSON object, or the JSON of a schema.
type responseFormat struct {
	Type       string         `json:"type"`
	JSONSchema *namedSchema   `json:"json_schema"`
	Schema     jsontext.Value `json:"schema"` // beside json_object, as llama.cpp takes it
}

type namedSchema struct {
	Name        *string        `json:"name"`
	Description *string        `json:"description"`
	Strict      *bool          `json:"strict"` // of no effect: every schema is kept to
	Schema      jsontext.Value `json:"schema"`
}

// formatMachine is what a response format constrains to; nil = nothing.
func (s *Server) formatMachine(ctx context.Context, field string, f *responseFormat) (*grammar.Machine, error) {
	switch {
	case f.Type == "text" && f.JSONSchema == nil && f.Schema == nil:
		return nil, nil
	case f.Type == "json_object" && f.JSONSchema == nil:
		if f.Schema != nil {
			return s.schemaMachine(ctx, field, f.Schema)
		}
		return s.machine(ctx, field, "object", schema.Object)
	case f.Type == "json_schema" && f.JSONSchema != nil && f.Schema == nil:
		if f.JSONSchema.Schema == nil {
			return nil, badField(field, "json_schema has no schema")
		}
		return s.schemaMachine(ctx, field, f.JSONSchema.Schema)
	}
	return nil, badField(field, "type %.20q: want text, json_object, or json_schema with a json_schema", f.Type)
}

// compact is a JSON value without white space.
func compact(v jsontext.Value) string {
	c := v.Clone()
	if c.Compact() != nil {
		return string(v)
	}
	return string(c)
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
