package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/engine/cachepage"
	"terrace/engine/prefixcache"
	"terrace/grammar"
	"terrace/internal/replace"
	"terrace/serve/offline"
	"terrace/tokenizer"
)

func init() { register(newGenerate) }

// sampleFlags are the flags of everything that samples.
type sampleFlags struct {
	samplerFlags
	maxTokens int
	stops     []string
	ignoreEOS bool
	overflow  string
	maxGiven  bool // --max-tokens was given
	verbose   bool
	breakers  []string // of DRY
}

func (f *sampleFlags) add(cmd *cobra.Command, maxTokens int) {
	p := cmd.Flags()
	p.IntVarP(&f.maxTokens, "max-tokens", "n", maxTokens, "tokens to generate at most (-1: until the context is full)")
	p.IntVar(&f.maxTokens, "n-predict", maxTokens, "alias of --max-tokens")
	f.samplerFlags.add(p, "")
	p.Float64Var(&f.o.FrequencyPenalty, "frequency-penalty", 0, "penalty for each time a token was generated")
	p.Float64Var(&f.o.PresencePenalty, "presence-penalty", 0, "penalty for tokens that were generated")
	f.addChain(p)
	p.VarP((*seedValue)(&f.o.Seed), "seed", "s", "seed of the sampler: the same seed gives the same text (default or -1: a random one, which --verbose and --json show)")
	p.BoolVar(&f.verbose, "verbose", false, "say on stderr what it took: rates, KV, the seed; errors name the package and kind they come from")
	p.StringArrayVar(&f.stops, "stop", nil, "end the text before this string (repeats)")
	p.BoolVar(&f.ignoreEOS, "ignore-eos", false, "go on past end-of-text tokens")
	p.StringVar(&f.overflow, "on-overflow", "error", "when the context is full: error, shift or truncate-middle")
	_ = p.MarkHidden("n-predict")
}

// given notes which flags the user gave: the seed is random where none is.
func (f *sampleFlags) given(cmd *cobra.Command) {
	f.maxGiven = cmd.Flags().Changed("max-tokens") || cmd.Flags().Changed("n-predict")
	if !cmd.Flags().Changed("seed") {
		f.o.Seed = uint64(rand.Uint32())
	}
}

// request fills the part of a request that the flags give.
func (f *sampleFlags) request() (engine.Request, error) {
	overflow, err := engine.ParseOverflow(f.overflow)
	if err != nil {
		return engine.Request{}, usageErrorf("--on-overflow: %v", err)
	}
	if err := f.check(); err != nil {
		return engine.Request{}, err
	}
	if f.breakers, err = f.dryBreakers(); err != nil {
		return engine.Request{}, err
	}
	if f.maxTokens < -1 {
		return engine.Request{}, usageErrorf("--max-tokens %d: want -1 (until the context is full) or more", f.maxTokens)
	}
	// An answer that the context leaves no room for is cut, which noticeCut says. A prompt's middle is cut instead where that was
	// chosen and the number of tokens too.
	cut := overflow == engine.OverflowError || overflow == engine.OverflowTruncateMiddle && !f.maxGiven
	return engine.Request{MaxTokens: f.maxTokens, Sampler: f.o, Stops: f.stops, IgnoreEOS: f.ignoreEOS, Overflow: overflow, CutToFit: cut}, nil
}

type generateCommand struct {
	*app

	load      loadFlags
	sample    sampleFlags
	kv        kvFlags
	speculate speculateFlags
	store     storeFlags
	promptFlags
	asJSON    bool
	constrain constrainFlags
	rows      rowFlags
	logprobs  int               // likeliest tokens beside each; -1 = no log probabilities
	probs     []offline.Logprob // of what was generated
	seeded    bool              // --seed was given
	cachePage string            // page of --timeline; "" = none
}

func newGenerate(a *app) *cobra.Command {
	gen := &generateCommand{app: a}
	cmd := &cobra.Command{
		Use: "generate [PROMPT]", Aliases: []string{"run"},
		Short: "Generate text from a prompt",
		Long: "Generate text from a prompt (an argument, --prompt-file, or standard input). A model with a chat template gets the prompt as a user's message unless --raw is given; only the text goes to stdout. " +
			"Where there is an argument or --prompt, text that is piped or redirected to standard input is joined below it, after an empty line; one line break at the end of piped text is dropped. " +
			"Standard input is not read with --prompt-file FILE and --ids-file.\n\n" +
			"--jsonl FILE answers a file of prompts, one JSON object a line, in batches: {\"prompt\": …} or {\"messages\": [{\"role\": …, \"content\": …}]}, and as wanted id, meta (both given back), system, max_tokens, temperature, top_k, top_p, min_p, repeat_penalty, " +
			"frequency_penalty, presence_penalty, typical_p, top_n_sigma, xtc_probability, xtc_threshold, dry_multiplier, dry_base, dry_allowed_length, dry_penalty_last_n, mirostat, mirostat_tau, mirostat_eta, min_tokens, stop_token_ids, seed, stop, ignore_eos, policy, logprobs, json_schema, grammar; or a line of OpenAI's batch files (custom_id, url, body). What a row leaves out is as the flags say. Answers go to --out, one line a row as it finishes (\"row\" is the input's line), or to standard output. " +
			"The same command goes on where --out ends; what is wrong with a row is the \"error\" of its line, the exit code is 1, and the same command tries it again.\n\n" +
			"'infer run MODEL [PROMPT]' takes a model's name or file first; without a prompt, on a terminal, it is 'infer chat'.",
		Example: "  infer generate \"Why is the sky blue?\"\n  infer generate --raw --temperature 0 -n 32 \"The capital of France is\"\n  infer generate \"Summarise this text:\" < notes.txt\n  infer run gemma3:1b \"Why is the sky blue?\"\n  cat notes.txt | infer generate --prompt-file - --json\n  infer generate --jsonl questions.jsonl --out answers.jsonl --batch 16 --temperature 0",
		RunE: func(cmd *cobra.Command, args []string) error {
			gen.sample.given(cmd)
			gen.seeded = cmd.Flags().Changed("seed")
			if cmd.CalledAs() == "run" {
				var err error
				if args, err = gen.runModel(cmd, args); err != nil {
					return err
				}
				if gen.talk(args) {
					return gen.asChat().run()
				}
			}
			if len(args) > 1 {
				return usageErrorf("%s takes one prompt; put it in quotes (%d arguments given)", cmd.CalledAs(), len(args))
			}
			return gen.run(args)
		},
	}
	gen.load.addRun(cmd)
	gen.load.addWeights(cmd)
	gen.load.addRecordExperts(cmd)
	gen.load.addTemplate(cmd)
	gen.sample.add(cmd, 256)
	gen.kv.add(cmd)
	gen.constrain.add(cmd)
	gen.speculate.add(cmd)
	gen.store.add(cmd)
	gen.store.addPlacement(cmd)
	p := cmd.Flags()
	p.StringVar(&gen.prefixFile, "prefix-file", "", "text that comes before the prompt, tokenised alone: a policy that drops tokens after the prompt works on it alone, so that many prompts can share it")
	p.StringVarP(&gen.prompt, "prompt", "p", "", "the prompt (instead of the argument)")
	p.StringVarP(&gen.promptFile, "prompt-file", "f", "", "read the prompt from a file, - for standard input")
	p.StringVar(&gen.idsFile, "ids-file", "", "read the prompt as a JSON array of token ids")
	p.BoolVar(&gen.chat, "chat", false, "use the model's chat template (an error if it has none)")
	p.BoolVar(&gen.raw, "raw", false, "no chat template: continue the prompt as it is")
	p.StringVar(&gen.system, "system", "", "system message of the chat template")
	p.BoolVar(&gen.asJSON, "json", false, "print one JSON object instead of text")
	p.StringVar(&gen.cachePage, "timeline", "", "write a page (HTML) that shows which tokens each layer keeps, where they lie, and what moves at each step")
	p.IntVar(&gen.logprobs, "logprobs", -1, "with --json and --jsonl: log probabilities of the tokens, and of the N likeliest at each place (0: of the tokens alone)")
	p.StringVar(&gen.rows.in, "jsonl", "", "answer the prompts of this file, one JSON object a line (- for standard input)")
	p.StringVar(&gen.rows.out, "out", "", "file of --jsonl's answers, taken up where it ends (default: standard output)")
	p.IntVar(&gen.rows.batch, "batch", 8, "rows of --jsonl that are decoded together")
	return cmd
}

func (gen *generateCommand) run(args []string) error {
	if gen.chat && gen.raw {
		return usageErrorf("--chat and --raw exclude each other")
	}
	req, err := gen.sample.request()
	if err != nil {
		return err
	}
	if err := gen.speculate.check(); err != nil {
		return err
	}
	if err := gen.checkRows(args); err != nil {
		return err
	}
	if err := gen.checkOutput(); err != nil {
		return err
	}
	limits, err := gen.constrain.compile()
	if err != nil {
		return err
	}
	if gen.rows.in != "" {
		return gen.generateRows(gen.seeded, limits, req)
	}
	prompt, ids, err := gen.readPrompt(args)
	if err != nil {
		return err
	}
	if err := gen.store.placed(); err != nil {
		return err
	}
	gen.kv.store = len(gen.store.stores) > 0 || gen.prefixFile != ""
	gen.kv.beside = gen.store.hostBytes()
	l, err := gen.openKVEngine(&gen.load, &gen.kv)
	if err != nil {
		return err
	}
	defer l.close()
	gen.sample.takeOwn(l.own, &req.Sampler)
	guesses, err := gen.speculate.open(gen.app, &gen.load, l)
	if err != nil {
		return err
	}
	defer guesses.close()
	defer gen.store.close(gen.app)
	if err := gen.openStore(&gen.store, l, gen.load.threads); err != nil {
		return err
	}
	req.Started, req.Speculate = time.Now(), guesses.drafter()
	prefix, err := gen.readPrefix(l)
	if err != nil {
		return err
	}
	if ids == nil {
		if ids, err = gen.encodePrompt(l, prompt, len(prefix) == 0); err != nil {
			return err
		}
	}
	if err := gen.watch(l, limits, ids, &req); err != nil {
		return err
	}
	gen.noticeCut(l, &req)
	if !gen.asJSON {
		req.OnText = gen.modelText
	}
	req.OnPrefill = gen.promptBar()
	res, err := gen.generateRecorded(l, prefix, req)
	defer gen.store.rest(gen.ctx)
	return gen.sayGeneration(l, res, err)
}

// checkOutput refuses flags of output that do not go together.
func (gen *generateCommand) checkOutput() error {
	if gen.logprobs < -1 || gen.logprobs > offline.MaxLogprobs || gen.logprobs >= 0 && !gen.asJSON && gen.rows.in == "" {
		return usageErrorf("--logprobs %d: want 0 to %d, with --json or --jsonl", gen.logprobs, offline.MaxLogprobs)
	}
	if gen.cachePage != "" && gen.rows.in != "" {
		return usageErrorf("--timeline draws one text, not the rows of --jsonl")
	}
	if gen.load.recordExperts != "" && gen.rows.in != "" {
		return usageErrorf("--record-experts records one text, not the rows of --jsonl")
	}
	return nil
}

// sayGeneration prints what was generated, whole or as far as it came before an error.
func (gen *generateCommand) sayGeneration(l *loaded, res *engine.Result, err error) error {
	gen.noticeTiers(l.engine, engine.TierUse{})
	gen.noticeBalance(l.engine)
	if res != nil && res.Dropped > 0 {
		gen.notice("%d tokens were dropped to fit the context of %d (--on-overflow %s)", res.Dropped, l.engine.Options().Context, gen.sample.overflow)
	}
	if err != nil {
		if !gen.asJSON && res != nil && res.Text != "" {
			fmt.Fprintln(gen.stdout)
			gen.lineEnded = gen.isTTY(gen.stdout)
		}
		return err
	}
	if !gen.asJSON && !strings.HasSuffix(res.Text, "\n") {
		fmt.Fprintln(gen.stdout)
	}
	gen.noticeDrop(l.engine, res)
	gen.sayUse(l, &gen.sample, res)
	if gen.asJSON {
		return gen.printGeneration(l, gen, res)
	}
	if res.Finish == "context" {
		gen.notice("stopped: the context of %d tokens is full (--on-overflow shift goes on)", l.engine.Options().Context)
	}
	return nil
}

// promptBar shows how far a long prompt is read.
func (gen *generateCommand) promptBar() func(done, total int) {
	bar := gen.newBar()
	return func(done, total int) {
		if total > 2*engine.DefaultChunkTokens {
			bar.count("reading the prompt", done, total)
		}
		if done == total {
			bar.done()
		}
	}
}

// watch says how the text is written and where it ends, and has it kept to its limits.
func (gen *generateCommand) watch(l *loaded, limits *grammar.Grammar, ids []int, req *engine.Request) (err error) {
	req.IDs, req.IsEnd, req.Text = ids, l.tok.IsEOG, l.tok.NewDetokenizer()
	gen.watchLogprobs(l, req)
	if req.Breakers, err = gen.sample.breakersOf(l.tok); err != nil {
		return err
	}
	req.Constrain, err = constraint(limits, l.tok)
	return err
}

// noticeCut says that fewer tokens are generated than were asked for, because the context holds no more.
func (gen *generateCommand) noticeCut(l *loaded, req *engine.Request) {
	context := l.engine.Options().Context
	if room := context - len(req.IDs); req.CutToFit && room > 0 && req.MaxTokens > room {
		gen.notice("at most %d tokens are generated, not %d: the context of %d has no room for more after a prompt of %d (--context N, or --on-overflow shift)", room, req.MaxTokens, context, len(req.IDs))
	}
}

// encodePrompt renders the chat template where one applies, and tokenises.
func (gen *generateCommand) encodePrompt(l *loaded, prompt string, first bool) ([]int, error) {
	if !gen.raw && (gen.chat || l.tok.HasTemplate()) {
		var msgs []tokenizer.Message
		if gen.system != "" {
			msgs = append(msgs, tokenizer.Message{Role: "system", Content: gen.system})
		}
		ids, err := l.tok.EncodeMessages(append(msgs, tokenizer.Message{Role: "user", Content: prompt}), true)
		if errors.Is(err, tokenizer.ErrNoTemplate) {
			return nil, usageErrorf("--chat: %s has no chat template", l.name)
		}
		if err != nil {
			return nil, dataErrorf("%s: %w (--raw runs without the template)", l.name, err)
		}
		return ids, nil
	}
	if !gen.raw {
		gen.notice("%s has no chat template: the prompt is continued as it is", l.name)
	}
	if gen.system != "" {
		return nil, usageErrorf("--system needs a chat template")
	}
	return l.tok.Encode(prompt, first, true)
}

// readPrefix tokenises the text of --prefix-file; nil = there is none.
func (gen *generateCommand) readPrefix(l *loaded) ([]int, error) {
	if gen.prefixFile == "" {
		return nil, nil
	}
	text, err := gen.readText(gen.prefixFile)
	if err != nil {
		return nil, err
	}
	if text == "" || !utf8.ValidString(text) {
		return nil, dataErrorf("--prefix-file %s: want text in UTF-8, and not none", gen.prefixFile)
	}
	return l.tok.Encode(text, true, false)
}

// generateAfter generates behind a prefix, nil = none. A policy that acts on the prompt alone compresses the prefix, not what
// follows; under others prefix and prompt are one.
func (gen *generateCommand) generateAfter(l *loaded, prefix []int, req engine.Request) (*engine.Result, error) {
	e := l.engine
	if len(prefix) == 0 || e.Policy().Lossless() || !e.PromptOnly(e.Policy()) {
		req.IDs = slices.Concat(prefix, req.IDs)
		req.Prefix = gen.store.find(gen.app, req.IDs, e.Policy())
		s, err := e.NewSession(e.Policy())
		if err != nil {
			return nil, err
		}
		defer s.Close()
		return gen.generateIn(s, l, 0, req)
	}
	found := gen.store.cache.Find(gen.ctx, prefix, e.Policy(), gen.store.salt)
	s, _, err := prefixcache.OpenContext(gen.ctx, e, prefix, e.Policy(), found, engine.PrefillHooks{Progress: req.OnPrefill})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	res, err := gen.generateIn(s, l, len(prefix), req)
	if res != nil {
		res.PromptTokens += len(prefix)
		res.Reused = found.Reused()
	}
	return res, err
}

// generateRecorded is generateAfter, where --record-experts asks for it with a record of the experts that tokens use.
func (gen *generateCommand) generateRecorded(l *loaded, prefix []int, req engine.Request) (*engine.Result, error) {
	record, err := gen.load.record(gen.app, l)
	if err != nil {
		return nil, err
	}
	res, err := gen.generateAfter(l, prefix, req)
	if err != nil {
		return res, err
	}
	return res, record()
}

// generateIn generates in a session that has read so many tokens, and draws its cache where --timeline asks.
func (gen *generateCommand) generateIn(s *engine.Session, l *loaded, read int, req engine.Request) (*engine.Result, error) {
	if gen.cachePage == "" {
		return s.Generate(gen.ctx, req)
	}
	read += len(req.IDs)
	most := l.engine.Options().Context
	if req.MaxTokens >= 0 {
		most = min(most, read+req.MaxTokens)
	}
	picture, before := cachepage.New(l.engine, most), req.OnLogits
	req.OnLogits = func(logits []float32) {
		picture.Note(s)
		if before != nil {
			before(logits)
		}
	}
	res, err := s.Generate(gen.ctx, req)
	if err != nil {
		return res, err
	}
	out, err := replace.New(gen.cachePage, 0o644)
	if err != nil {
		return res, err
	}
	defer out.Cleanup()
	if err := picture.Write(out, l.name, gen.kv.policyName(), read); err != nil {
		return res, err
	}
	return res, out.CloseAtomicallyReplace()
}

// generation is what generate --json prints.
type generation struct {
	Model            string            `json:"model"`
	Backend          string            `json:"backend"`
	Policy           string            `json:"policy"`
	Seed             uint64            `json:"seed"`
	PromptTokens     int               `json:"prompt_tokens"`
	CompletionTokens int               `json:"completion_tokens"`
	TokenIDs         []int             `json:"token_ids"`
	Text             string            `json:"text"`
	FinishReason     string            `json:"finish_reason"`
	Logprobs         []offline.Logprob `json:"logprobs,omitempty"`     // of token_ids, in their order
	CachedTokens     int               `json:"cached_tokens"`          // of the prompt, from --store
	CacheTier        string            `json:"cache_tier"`             // the slowest that they came from
	CacheMethod      string            `json:"cache_method,omitempty"` // how they were compressed, of --placement
	CacheKeep        float64           `json:"cache_keep,omitempty"`
	DroppedTokens    int               `json:"dropped_tokens,omitempty"`
	Timings          timingsJSON       `json:"timings"`
	KV               kvJSON            `json:"kv"`
	Weights          *streamJSON       `json:"weights,omitempty"` // of --weights
	Drive            []driveJSON       `json:"drive,omitempty"`   // that attend, in the order of --tier
	Speculation      *speculationJSON  `json:"speculation,omitempty"`
}

type timingsJSON struct {
	LoadMS     float64 `json:"load_ms"`
	TTFTMS     float64 `json:"ttft_ms"`
	PrefillTPS float64 `json:"prefill_tps"`
	DecodeTPS  float64 `json:"decode_tps"`
	ITLP50MS   float64 `json:"itl_ms_p50"`
	ITLP99MS   float64 `json:"itl_ms_p99"`
	Source     string  `json:"source,omitempty"` // modelled: tokens came from a --store whose reads are held to a rate
}

func (gen *generateCommand) printGeneration(l *loaded, f *generateCommand, res *engine.Result) error {
	ids := res.IDs
	if ids == nil {
		ids = []int{}
	}
	return gen.printJSON(generation{
		Model: l.name, Backend: f.load.backend, Policy: f.kv.policyName(), Seed: f.sample.o.Seed,
		PromptTokens: res.PromptTokens, CompletionTokens: len(ids), TokenIDs: ids, Text: res.Text, FinishReason: res.Finish, CachedTokens: res.Reused.Tokens, CacheTier: res.Reused.Tier, CacheMethod: res.Reused.Method, CacheKeep: res.Reused.Keep, DroppedTokens: res.Dropped, Logprobs: f.probs,
		Timings: timingsJSON{LoadMS: ms(l.loadTime), TTFTMS: ms(res.Timings.TTFT), PrefillTPS: res.Timings.PrefillTPS, DecodeTPS: res.Timings.DecodeTPS,
			ITLP50MS: ms(res.Timings.ITLP50), ITLP99MS: ms(res.Timings.ITLP99), Source: f.store.source(res.Reused)},
		KV: kvReport(l.engine, res), Weights: weightsReport(l.engine), Drive: driveReport(l.engine), Speculation: speculationReport(res.Speculation),
	})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
