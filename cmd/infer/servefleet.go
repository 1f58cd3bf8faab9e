package main

import (
	"context"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"terrace/internal/memlimit"
	"terrace/internal/units"
	"terrace/serve"
)

// memberTokens is how many tokens of KV a member of a fleet is counted with; it may hold more, as a single model may.
const memberTokens = 4096

// answering is a server, or a fleet of them.
type answering interface {
	Handler() http.Handler
	Drain(ctx context.Context) error
	Close()
}

// takeModels reads the models from the arguments: one is as --model, several are a fleet.
func (c *serveCommand) takeModels(cmd *cobra.Command, args []string) error {
	if len(args) < 2 {
		if c.modelsMemory != "" {
			return usageErrorf("--models-memory %s: it is for several models, infer serve MODEL MODEL…", c.modelsMemory)
		}
		return c.load.takeModel(c.app, cmd, args)
	}
	if given := cmd.Flags().Lookup("model"); given.Changed && !filled(given) || c.load.hfRepo != "" {
		return usageErrorf("models as arguments and by --model: name all as arguments")
	}
	for name, given := range map[string]bool{"tier": len(c.kv.tiers) > 0, "lora": len(c.load.loras) > 0, "chat-template": c.load.templateFile != "", "trace": c.traces.dir != ""} {
		if given {
			return usageErrorf("--%s is of one model; %d are served", name, len(args))
		}
	}
	for i, name := range args {
		if slices.Contains(args[:i], name) {
			return usageErrorf("model %s is named twice", name)
		}
	}
	c.models = args
	return nil
}

// several opens a fleet of the models. Each is opened for a moment first: what cannot be read is said now.
func (c *serveCommand) several(common serve.Options) (*serve.Fleet, error) {
	bytes := memlimit.Available() / 4 * 3
	if c.modelsMemory != "" {
		var err error
		if bytes, err = units.ParseBytes(c.modelsMemory); err != nil || bytes <= 0 {
			return nil, usageErrorf("--models-memory %s: want a size such as 8GiB", c.modelsMemory)
		}
	}
	encoders, closeEncoder, err := c.serveEncoder()
	if err != nil {
		return nil, err
	}
	common.Encoders = encoders
	o := serve.FleetOptions{Bytes: bytes, Front: common}
	for i, name := range c.models {
		m, err := c.member(name, i == 0, common)
		if err != nil {
			closeEncoder()
			return nil, err
		}
		o.Members = append(o.Members, m)
	}
	fleet, err := serve.NewFleet(o)
	if err != nil {
		closeEncoder()
		return nil, err
	}
	c.notice("%d models are loaded when they are asked for, together in at most %s (--models-memory)", len(c.models), units.FormatBytes(bytes))
	return fleet, nil
}

// member is one model of a fleet; the names of --alias are the first's.
func (c *serveCommand) member(name string, first bool, o serve.Options) (m serve.Member, err error) {
	of := *c
	of.load.model, of.load.texts = name, c.batch
	if !first {
		of.aliases = nil
	}
	l, err := c.openFile(&of.load)
	if err != nil {
		return m, err
	}
	defer l.close()
	if m.Model, err = l.file.Model(); err != nil {
		return m, modelError(err)
	}
	options, err := of.load.options()
	if err != nil {
		return m, err
	}
	need, err := l.file.Fit(options, 0)
	if err != nil {
		return m, err
	}
	m.Names, m.Patterns = of.names(name)
	m.Bytes = need.WeightsBytes + need.BuffersBytes + need.KVBytesPerToken*int64(min(need.ContextTokens, memberTokens))
	m.Open = func() (*serve.Server, func(), error) {
		own := of
		l, err := c.openKVEngine(&own.load, &own.kv)
		if err != nil {
			return nil, nil, err
		}
		s, err := c.onStore(&own, l, o)
		if err != nil {
			l.close()
			return nil, nil, err
		}
		return s, l.close, nil
	}
	return m, nil
}

// onStore is the server of a loaded model on the store that all members share.
func (c *serveCommand) onStore(own *serveCommand, l *loaded, o serve.Options) (*serve.Server, error) {
	if err := c.useStore(&c.store, l); err != nil {
		return nil, err
	}
	switch {
	case c.store.placement != nil:
		if err := c.keepContexts(&c.store, l, c.load.threads); err != nil {
			return nil, err
		}
	case !c.deterministic:
		c.store.cache.KeepAnswers()
	}
	return own.server(l, o)
}
