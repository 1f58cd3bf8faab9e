package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/engine/draft"
	"terrace/internal/memlimit"
	"terrace/internal/replace"
	"terrace/serve"
	"terrace/serve/meter/prom"
)

func init() { register(newServe) }

type serveCommand struct {
	*app

	load         loadFlags
	kv           kvFlags
	store        storeFlags
	sampling     samplerFlags
	batch, queue int
	itl          time.Duration
	metricsAlias string
	traces       *traceFolder

	answerFlags
	addressFlags
	accessFlags
	servedFlags
}

// answerFlags say how texts are made and written.
type answerFlags struct {
	guess         bool
	deterministic bool
	reasoning     string
	special       bool
}

// addressFlags say where the server listens and what it tells its keeper.
type addressFlags struct {
	addr      string
	readyFile string
	grace     time.Duration
	log       string
}

// accessFlags say who may ask.
type accessFlags struct {
	keyFile        string
	insecure       bool
	openMetrics    bool
	metricsKeyFile string
	origins        []string
}

// servedFlags are the models and their names.
type servedFlags struct {
	aliases      []string
	models       []string // several, as arguments; none = load's
	modelsMemory string
	embeddings   string
}

func newServe(a *app) *cobra.Command {
	return newServeOf(&serveCommand{app: a, load: loadFlags{serves: true}, traces: &traceFolder{}})
}

func newServeOf(c *serveCommand) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve [MODEL…]",
		Short: "Serve OpenAI's APIs over HTTP",
		Long: "Serve a model over HTTP: /v1/chat/completions, /v1/completions and their neighbours, for the clients of OpenAI's API, with continuous batching: requests join and leave the batch between steps, and a text never depends on who else is served. " +
			"The address is this machine's own unless --api-key-file or --insecure is given. SIGTERM refuses new requests, waits for those that run up to --grace, then ends with 143; a second signal ends at once. Several models are loaded when they are asked for, within --models-memory; the one used longest ago leaves. See docs/server.md.",
		Example: "  infer serve --model smollm2:135m --addr 127.0.0.1:8080\n  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}]}'",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.takeModels(cmd, args); err != nil {
				return err
			}
			c.ownStore(cmd)
			return c.run()
		},
	}
	c.load.addRun(cmd)
	c.load.addWeights(cmd)
	c.load.addTemplate(cmd)
	c.kv.add(cmd)
	c.sampling.add(cmd.Flags(), "of requests that do not say, as the next: ")
	cmd.Flags().BoolVar(&c.guess, "speculate", false, "read tokens with guesses of what follows (ngram: what followed the same tokens before) while one text decodes alone; the text stays the same")
	c.store.addStores(cmd, fmt.Sprintf("host=%dMiB", defaultStore(memlimit.Available())>>20))
	cmd.Flags().Lookup("store").Usage += "; none keeps nothing, which is the default beside --tier, --memory and --placement none"
	p := cmd.Flags()
	p.BoolVar(&c.deterministic, "deterministic", false, "keep and find prompts alone, not answers too: a text then never depends on what was served before, to the last bit; with answers, whose numbers differ in their last bits, a near tie may fall the other way")
	p.StringVar(&c.modelsMemory, "models-memory", "", "memory that several models may take together, such as 8GiB (default: three quarters of what is free)")
	p.StringVar(&c.store.place, "placement", "lru", "what --store keeps: "+placementUsage)
	p.StringVar(&c.addr, "addr", "127.0.0.1:8080", "address to listen at, HOST:PORT (port 0: a free one)")
	p.StringVar(&c.readyFile, "ready-file", "", "write the base URL here once requests can be served")
	p.StringArrayVar(&c.aliases, "alias", nil, "name of the model for clients (repeats; default: as --model says); one with * is a pattern of names that are answered besides, such as claude-* or *")
	p.StringVar(&c.embeddings, "embeddings", "", "an encoder for /v1/embeddings too, such as minilm:l6")
	p.IntVar(&c.batch, "batch", 8, "texts that are made at a time")
	p.IntVar(&c.queue, "queue", 64, "requests that wait beside them; more are answered 429")
	p.StringVar(&c.keyFile, "api-key-file", "", "file of API keys, one a line; each request needs one of them")
	p.BoolVar(&c.openMetrics, "open-metrics", false, "answer GET /metrics without a key")
	p.StringVar(&c.metricsKeyFile, "metrics-key-file", "", "file of keys, one a line, that open GET /metrics and nothing else")
	p.BoolVar(&c.insecure, "insecure", false, "listen at an address of other machines' without keys")
	p.DurationVar(&c.grace, "grace", 30*time.Second, "how long running requests may take after SIGTERM")
	p.DurationVar(&c.itl, "itl-target", 0, "time between two tokens of a text at most, while prompts of others are read (0: four steps of all texts)")
	p.StringVar(&c.traces.dir, "trace", "", "write a timeline of each request to this folder, TIME-ID.json for Perfetto; the newest 1,000 of a run are kept")
	p.StringVar(&c.log, "log", "text", "access log on stderr: text, json or none")
	p.StringArrayVar(&c.origins, "cors", nil, "origin of web pages that may use the server beside its own and those of localhost, such as https://chat.example (repeats; * is any)")
	p.StringVar(&c.reasoning, "reasoning", serve.ReasoningAuto, "what a model thinks before it answers: auto (reasoning_content, thinking blocks, reasoning items) or none (part of the text, with its marks)")
	p.BoolVar(&c.special, "special-in-content", false, "control tokens that clients write in messages (<|im_end|>) are what they name; otherwise they are plain text in all turns but the assistant's")
	p.StringVar(&c.metricsAlias, "metrics-alias", "", "give metrics the names of another server too: llamacpp")
	return cmd
}

// defaultStore is how many bytes of prompts a server keeps in memory where nothing is said: a sixteenth of the memory that is free, in
// whole steps of 64 MiB, 64 MiB to 4 GiB.
func defaultStore(free int64) int64 {
	const step = 64 << 20
	return min(max(free/16/step*step, step), 4<<30)
}

// ownStore reads --store none, and drops the default where it has no place.
func (c *serveCommand) ownStore(cmd *cobra.Command) {
	given := cmd.Flags().Changed("store")
	if given && slices.Equal(c.store.stores, []string{"none"}) || !given && (len(c.kv.tiers) > 0 || c.store.place == "none" || c.load.memory != "") {
		c.store.stores = nil
	}
}

// check refuses numbers and words out of range.
func (c *serveCommand) check() error {
	if c.batch < 1 || c.batch > 1024 || c.queue < 0 || c.queue > 1<<20 {
		return usageErrorf("--batch %d --queue %d: want 1 to 1024, 0 to %d", c.batch, c.queue, 1<<20)
	}
	if c.grace < 0 || c.itl < 0 {
		return usageErrorf("--grace %v --itl-target %v: want 0 or more", c.grace, c.itl)
	}
	if c.reasoning != serve.ReasoningAuto && c.reasoning != serve.ReasoningNone {
		return usageErrorf("--reasoning %s: want %s or %s", c.reasoning, serve.ReasoningAuto, serve.ReasoningNone)
	}
	if c.metricsAlias != "" && c.metricsAlias != "llamacpp" {
		return usageErrorf("--metrics-alias %s: want llamacpp", c.metricsAlias)
	}
	return nil
}

func (c *serveCommand) run() error {
	host, _, err := net.SplitHostPort(c.addr)
	if err != nil {
		return usageErrorf("--addr %s: want HOST:PORT, such as 127.0.0.1:8080", c.addr)
	}
	if err := c.check(); err != nil {
		return err
	}
	common, err := c.admission(host)
	if err != nil {
		return err
	}
	if err := c.placed(); err != nil {
		return err
	}
	c.kv.store = len(c.store.stores) > 0
	c.kv.beside = c.store.hostBytes()
	listener, err := net.Listen("tcp", c.addr)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%s is in use: give another --addr, or port 0 for a free one", c.addr)
		}
		return fmt.Errorf("--addr %s: %w", c.addr, err)
	}
	defer listener.Close()
	c.load.texts = c.batch
	defer c.store.close(c.app)
	if len(c.models) > 0 {
		fleet, err := c.several(common)
		if err != nil {
			return err
		}
		defer fleet.Close()
		return c.listen(fleet, listener)
	}
	l, err := c.openKVEngine(&c.load, &c.kv)
	if err != nil {
		return err
	}
	defer l.close()
	encoders, closeEncoder, err := c.serveEncoder()
	if err != nil {
		return err
	}
	defer closeEncoder()
	common.Encoders = encoders
	s, err := c.onStore(c, l, common)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := c.noticeRoom(l.engine); err != nil {
		return err
	}
	return c.listen(s, listener)
}

// admission is who is served: keys, hosts and origins, with the log of it.
func (c *serveCommand) admission(host string) (o serve.Options, err error) {
	o.Meter = prom.New
	if o.Log, err = c.logger(); err != nil {
		return o, err
	}
	if c.keyFile != "" {
		if o.Keys, err = c.readKeys("--api-key-file", c.keyFile); err != nil {
			return o, err
		}
	}
	o.OpenMetrics, o.Origins = c.openMetrics, c.origins
	if c.metricsKeyFile != "" {
		if c.openMetrics || c.keyFile == "" {
			return o, usageErrorf("--metrics-key-file is for a server with --api-key-file, without --open-metrics")
		}
		if o.MetricsKeys, err = c.readKeys("--metrics-key-file", c.metricsKeyFile); err != nil {
			return o, err
		}
	}
	local := onLoopback(host)
	if o.AnyHost = !local; local || len(o.Keys) > 0 {
		return o, nil
	}
	if !c.insecure {
		return o, usageErrorf("--addr %s can be reached from other machines: give --api-key-file, or --insecure if everybody who reaches it may use it", c.addr)
	}
	c.notice("WARNING: everybody who can reach %s may use this server: there are no API keys (--insecure)", c.addr)
	return o, nil
}

// noticeRoom says what the tiers hold, where that is bounded.
func (c *serveCommand) noticeRoom(e *engine.Engine) error {
	o := e.Options()
	if o.KVBudgetBytes == 0 {
		return nil
	}
	n, err := e.LongestText(0)
	if err != nil {
		return err
	}
	less := ""
	if n < o.Context {
		less = fmt.Sprintf(", less than the context of %d", o.Context)
	}
	c.notice("the memory given for KV holds a text of %d tokens%s; texts that run together share it", n, less)
	return nil
}

// names are those of a model for clients, and the patterns of names.
func (c *serveCommand) names(own string) (names, patterns []string) {
	for _, name := range c.aliases {
		if strings.Contains(name, "*") {
			patterns = append(patterns, name)
			continue
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		names = []string{own}
	}
	return names, patterns
}

// server is the server on a loaded model.
func (c *serveCommand) server(l *loaded, o serve.Options) (s *serve.Server, err error) {
	o.Engine, o.Tokenizer, o.ModelPath = l.engine, l.tok, l.path
	o.Names, o.Patterns = c.names(l.name)
	if c.guess {
		o.Speculate = func() draft.Drafter { return draft.NewNGram() }
	}
	o.Batch, o.Queue, o.ITLTarget, o.Alias, o.SpecialInContent, o.Reasoning = c.batch, c.queue, c.itl, c.metricsAlias, c.special, c.reasoning
	if err := c.sampling.check(); err != nil {
		return nil, err
	}
	o.Sampling = c.sampling.over(l.own)
	if o.Traces, err = c.traces.open(); err != nil {
		return nil, err
	}
	return serve.New(o)
}

// serveEncoder opens the encoder of /v1/embeddings, nil where none is asked for; close it.
func (c *serveCommand) serveEncoder() (*serve.Encoders, func(), error) {
	if c.embeddings == "" {
		return nil, func() {}, nil
	}
	e, err := c.openEncoder(c.embeddings, c.load.threads)
	if err != nil {
		return nil, nil, err
	}
	return &serve.Encoders{Encoder: e.BERT(), Name: c.embeddings}, func() { e.Close() }, nil
}

// listen serves until a signal comes, then drains.
func (c *serveCommand) listen(s answering, listener net.Listener) error {
	h := &http.Server{Handler: s.Handler(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	serve.Limit(h)
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(listener) }()
	url := "http://" + listener.Addr().String()
	if c.readyFile != "" {
		if err := replace.WriteFile(c.readyFile, []byte(url+"\n"), 0o644); err != nil {
			return fmt.Errorf("--ready-file %s: %w", c.readyFile, err)
		}
		defer os.Remove(c.readyFile)
	}
	c.notice("serving at %s", url)
	select {
	case err := <-ended:
		return err
	case <-c.ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.grace)
	defer cancel()
	if err := s.Drain(ctx); err != nil {
		c.notice("requests still run after %v: they are ended", c.grace)
	}
	s.Close()
	last, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := h.Shutdown(last); err != nil {
		_ = h.Close()
	}
	return c.ctx.Err()
}

// logger is what the access log goes to.
func (c *serveCommand) logger() (*slog.Logger, error) {
	switch c.log {
	case "text":
		return slog.New(slog.NewTextHandler(c.stderr, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(c.stderr, nil)), nil
	case "none":
		return slog.New(slog.DiscardHandler), nil
	}
	return nil, usageErrorf("--log %s: want text, json or none", c.log)
}

// onLoopback reports whether an address is reached from this machine alone.
func onLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// maxKeyBytes is the most that a line of a key file may have.
const maxKeyBytes = 64 << 10

// readKeys reads API keys, one a line; empty lines and those that begin with # are none.
func (c *serveCommand) readKeys(flag, path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, dataErrorf("%s: %v", flag, err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		c.notice("WARNING: %s %s can be read by others (mode %04o): chmod 600 %s", flag, path, info.Mode().Perm(), path)
	}
	text, err := readBounded(file, path)
	if err != nil {
		return nil, err
	}
	var keys []string
	number := 0
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\uFEFF"), "\n") { // an editor's byte order mark is no part of a key
		number++
		key := strings.TrimSpace(line)
		switch {
		case key == "" || key[0] == '#':
		case len(key) < 8 || len(key) > maxKeyBytes:
			return nil, dataErrorf("%s %s: line %d: a key of %d characters, want 8 to %d", flag, path, number, len(key), maxKeyBytes)
		default:
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, dataErrorf("%s %s: no keys", flag, path)
	}
	return keys, nil
}
