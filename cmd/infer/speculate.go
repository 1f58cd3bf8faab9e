package main

import (
	"strings"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/engine/draft"
	"terrace/internal/nearest"
)

// speculateFlags say what guesses tokens ahead of the model.
type speculateFlags struct {
	spec  string
	model string // as --draft names it: spec is draft=MODEL, once checked
}

func (f *speculateFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.spec, "speculate", "", "guess tokens and read several in one pass; the text stays the same: ngram (what followed the same tokens before), draft=MODEL (a smaller model with the same vocabulary)")
	cmd.Flags().StringVar(&f.model, "draft", "", "as --speculate draft=MODEL")
}

// drafting makes drafters for the generations of one command.
type drafting struct {
	model *loaded // that drafts; nil = none
	draft *draft.Model
	ngram bool
}

// check refuses what is no way to guess, before any model is read.
func (f *speculateFlags) check() error {
	if f.model != "" {
		if f.spec != "" && f.spec != "draft="+f.model {
			return usageErrorf("--draft %s says what guesses, and --speculate %s too: leave one out", f.model, f.spec)
		}
		f.spec = "draft=" + f.model
	}
	if name, ok := strings.CutPrefix(f.spec, "draft="); f.spec == "" || f.spec == "ngram" || ok && name != "" {
		return nil
	}
	return usageErrorf("--speculate %q: want ngram or draft=MODEL%s", f.spec, nearest.Hint(f.spec, []string{"ngram", "draft=MODEL"}))
}

// open opens what guesses for a model.
func (f *speculateFlags) open(a *app, load *loadFlags, l *loaded) (*drafting, error) {
	name, ok := strings.CutPrefix(f.spec, "draft=")
	if !ok {
		return &drafting{ngram: f.spec == "ngram"}, nil
	}
	small, err := a.openEngine(&loadFlags{model: name, backendFlags: load.backendFlags, context: load.context, numberFlags: numberFlags{dtype: "f32"}}, nil)
	if err != nil {
		return nil, err
	}
	d := &drafting{model: small}
	if err = sameVocabulary(l, small); err == nil {
		d.draft, err = engine.NewDraftModel(small.name, small.engine)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// sameVocabulary refuses a draft model whose ids mean something else.
func sameVocabulary(l, small *loaded) error {
	if l.tok.Size() != small.tok.Size() {
		return usageErrorf("--speculate draft=%s: its vocabulary has %d tokens, that of %s %d: take a smaller model of the same family", small.name, small.tok.Size(), l.name, l.tok.Size())
	}
	for id := range l.tok.Size() {
		if a, b := l.tok.TokenText(id), small.tok.TokenText(id); a != b {
			return usageErrorf("--speculate draft=%s: token %d is %q there and %q in %s: take a smaller model of the same family", small.name, id, b, a, l.name)
		}
	}
	return nil
}

// drafter is for one generation; nil = none.
func (d *drafting) drafter() draft.Drafter {
	switch {
	case d.draft != nil:
		return d.draft
	case d.ngram:
		return draft.NewNGram()
	}
	return nil
}

func (d *drafting) close() {
	if d.draft != nil {
		d.draft.Close()
	}
	if d.model != nil {
		d.model.close()
	}
}

// speculationJSON is what guessing brought, in generate --json.
type speculationJSON struct {
	Drafter    string  `json:"drafter"`
	Passes     int     `json:"passes"`
	Drafted    int     `json:"drafted_tokens"`
	Accepted   int     `json:"accepted_tokens"`
	Acceptance float64 `json:"acceptance"` // of the guesses read; 0 without any
	DraftMS    float64 `json:"draft_ms"`
}

// speculationReport is nil without --speculate.
func speculationReport(u *engine.Speculation) *speculationJSON {
	if u == nil {
		return nil
	}
	return &speculationJSON{Drafter: u.Drafter, Passes: u.Passes, Drafted: u.Drafted, Accepted: u.Accepted,
		Acceptance: float64(u.Accepted) / float64(max(u.Drafted, 1)), DraftMS: ms(u.Drafting)}
}
