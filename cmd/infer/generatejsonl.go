package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-json-experiment/json/jsontext"
	"terrace/engine"

	"terrace/grammar"
	"terrace/grammar/schema"
	"terrace/internal/memlimit"
	"terrace/serve"
	"terrace/serve/offline"
	"terrace/tokenizer"
)

// rowFlags are those of generate --jsonl.
type rowFlags struct {
	in, out string
	batch   int
}

// check refuses what has no meaning for a file of prompts.
func (gen *generateCommand) checkRows(args []string) error {
	switch {
	case gen.rows.in == "" && gen.rows.out != "":
		return usageErrorf("--out goes with --jsonl; redirect standard output for one answer")
	case gen.rows.in == "":
		return nil
	case len(args) > 0 || gen.prompt != "" || gen.promptFile != "" || gen.idsFile != "" || gen.prefixFile != "":
		return usageErrorf("--jsonl has the prompts; give no other beside it")
	case gen.rows.batch < 1 || gen.rows.batch > 1024:
		return usageErrorf("--batch %d: want 1 to 1024", gen.rows.batch)
	case gen.speculate.spec != "" || gen.speculate.model != "":
		return usageErrorf("--speculate: not with --jsonl, whose rows are decoded together")
	case gen.sample.overflow != "error":
		return usageErrorf("--on-overflow %s: not with --jsonl: a prompt that does not fit is an error of its row", gen.sample.overflow)
	}
	return nil
}

// generateRows answers the rows of --jsonl together in one batch.
func (gen *generateCommand) generateRows(seeded bool, limits *grammar.Grammar, req engine.Request) error {
	in := io.NopCloser(gen.stdin)
	if gen.rows.in != "-" {
		file, err := os.Open(gen.rows.in)
		if err != nil {
			return dataErrorf("--jsonl: %v", err)
		}
		in = file
	}
	defer in.Close()
	out := offline.Stream(gen.stdout)
	if gen.rows.out != "" && gen.rows.out != "-" {
		var err error
		gen.made.mayMake(gen.rows.out)
		if out, err = offline.Open(gen.rows.out); err != nil {
			return rowsError(err)
		}
	}
	defer out.Close()
	if n := out.Done(); n > 0 {
		gen.notice("%s: %d rows are there", gen.rows.out, n)
	}
	if len(gen.store.stores) == 0 && len(gen.kv.tiers) == 0 { // what rows begin with is read once
		gen.store.stores, gen.store.unsaid = []string{fmt.Sprintf("host=%dMiB", defaultStore(memlimit.Available())>>20)}, true
	}
	if err := gen.store.placed(); err != nil {
		return err
	}
	gen.kv.store, gen.load.texts = true, gen.rows.batch // rows may name policies of their own
	l, err := gen.openKVEngine(&gen.load, &gen.kv)
	if err != nil {
		return err
	}
	defer l.close()
	defer gen.store.close(gen.app)
	if err := gen.openStore(&gen.store, l, gen.load.threads); err != nil {
		return err
	}
	gen.sample.takeOwn(l.own, &req.Sampler)
	o, err := gen.rowOptions(l, seeded, limits, req)
	if err != nil {
		return err
	}
	s, err := serve.New(serve.Options{Engine: l.engine, Tokenizer: l.tok, Names: []string{l.name}, Patterns: []string{"*"}, ModelPath: l.path, Batch: gen.rows.batch, Queue: o.Ahead, Sampling: gen.sample.over(l.own)})
	if err != nil {
		return err
	}
	defer s.Close()
	o.Server = s
	bar := gen.newBar()
	o.Progress = func(c offline.Counts) { bar.count("rows", c.Done, 0) }
	counts, err := offline.Run(gen.ctx, in, out, *o)
	bar.done()
	if err != nil {
		return rowsError(err)
	}
	if counts.Failed > 0 {
		return fmt.Errorf("%d of %d rows have errors (their \"error\" says which); the same command tries them again", counts.Failed, counts.Done)
	}
	return nil
}

// rowsError gives errors of the output their exit code.
func rowsError(err error) error {
	if errors.Is(err, offline.ErrOther) || errors.Is(err, offline.ErrBusy) {
		return usageErrorf("--out: %w", err)
	}
	return err
}

// bodyFields are the flags that were given as fields of a request's body.
func bodyFields(gen *generateCommand, seeded bool, req *engine.Request) (list []offline.Field) {
	add := func(given bool, value any, names ...string) {
		if given {
			list = append(list, offline.Field{Names: names, Value: value})
		}
	}
	add(gen.sample.maxGiven, req.MaxTokens, "max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")
	add(seeded, req.Sampler.Seed, "seed")
	add(len(req.Stops) > 0, req.Stops, "stop")
	add(req.IgnoreEOS, true, "ignore_eos")
	return list
}

// beyondFields names a flag that was given and that no field of a request's body stands for; "" = none.
func beyondFields(gen *generateCommand) string {
	switch {
	case gen.constrain != (constrainFlags{}):
		return "--grammar, --json-schema or --format"
	case gen.logprobs >= 0:
		return "--logprobs"
	case gen.system != "":
		return "--system"
	}
	return ""
}

// rowOptions are what rows have from the flags.
func (gen *generateCommand) rowOptions(l *loaded, seeded bool, limits *grammar.Grammar, req engine.Request) (*offline.Options, error) {
	spec := l.engine.Policy()
	model, err := l.fingerprint()
	if err != nil {
		return nil, err
	}
	constraint, err := gen.constrain.text()
	if err != nil {
		return nil, err
	}
	vocabulary := grammar.NewVocabulary(l.tok.Pieces(nil))
	d := serve.Request{MaxTokens: req.MaxTokens, Sampler: req.Sampler, Breakers: gen.sample.breakers, Stops: req.Stops, IgnoreEOS: req.IgnoreEOS, Logprobs: gen.logprobs, Policy: spec}
	if limits != nil {
		if d.Machine, err = grammar.NewMachine(limits, vocabulary); err != nil {
			return nil, err
		}
	}
	settings := req.Sampler
	if !seeded {
		settings.Seed = 0
	}
	return &offline.Options{Defaults: d, Fields: bodyFields(gen, seeded, &req), NoBody: beyondFields(gen), Seeded: seeded, IsEnd: l.tok.IsEOG, Ahead: 2 * gen.rows.batch, Check: l.engine.CheckModel,
		Settings: fmt.Sprintf("%s|%s|%+v|%v|%d|%q|%v|%d|%v%v|%q|%s|%v|%s|%d|%v|%d|%q|%q|%q", model, orDefault(gen.load.policy, spec.String()), settings, seeded, req.MaxTokens, req.Stops, req.IgnoreEOS, gen.logprobs,
			gen.raw, gen.chat, gen.system, gen.load.backend, gen.load.exact, orDefault(gen.load.kvType, gen.load.ctk+"/"+gen.load.ctv), gen.load.kvWindow, gen.load.kvRotate, l.engine.Options().Context, constraint, l.tok.Template(), gen.sample.breakers) + gen.load.biased(),
		Machine: func(text jsontext.Value, gbnf string) (*grammar.Machine, error) {
			g, err := compileRow(text, gbnf)
			if err != nil {
				return nil, err
			}
			return grammar.NewMachine(g, vocabulary)
		},
		Prompt: func(r *offline.Row) ([]int, error) { return gen.encodeRow(l, r) }}, nil
}

// compileRow compiles what a row's text may be.
func compileRow(text jsontext.Value, gbnf string) (*grammar.Grammar, error) {
	if text != nil {
		return schema.Compile(text)
	}
	return grammar.GBNF(gbnf)
}

// encodeRow renders a row's prompt as generate does one.
func (gen *generateCommand) encodeRow(l *loaded, r *offline.Row) ([]int, error) {
	var msgs []tokenizer.Message
	system := gen.system
	if r.System != nil {
		system = *r.System
	}
	for _, m := range r.Messages {
		msgs = append(msgs, tokenizer.Message{Role: m.Role, Content: m.Content})
	}
	if r.Messages == nil {
		if gen.raw || !gen.chat && !l.tok.HasTemplate() {
			if system != "" {
				return nil, errors.New("a system message needs a chat template")
			}
			return l.tok.Encode(*r.Prompt, true, true)
		}
		if system != "" {
			msgs = append(msgs, tokenizer.Message{Role: "system", Content: system})
		}
		msgs = append(msgs, tokenizer.Message{Role: "user", Content: *r.Prompt})
	}
	return l.tok.EncodeMessages(msgs, true)
}

// watchLogprobs notes the log probabilities of what is generated, for --logprobs of one answer.
func (gen *generateCommand) watchLogprobs(l *loaded, req *engine.Request) {
	if gen.logprobs < 0 {
		return
	}
	ranker := serve.NewRanker(l.tok, gen.logprobs)
	var pending *serve.Token
	text := req.Text
	req.OnLogits = func(logits []float32) {
		ranker.Rank(logits)
		pending = &serve.Token{}
	}
	req.Text = tokenTap{text, func(id int, piece string) {
		pending.ID, pending.Text = id, piece
		ranker.Fill(pending)
		gen.probs = append(gen.probs, offline.NewLogprob(*pending))
	}}
}

// tokenTap is a text that tells of each token.
type tokenTap struct {
	engine.Text
	tell func(id int, piece string)
}

// Push implements engine.Text.
func (t tokenTap) Push(id int) string {
	piece := t.Text.Push(id)
	t.tell(id, piece)
	return piece
}
