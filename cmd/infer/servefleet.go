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
func (f *serveFlags) takeModels(a *app, cmd *cobra.Command, args []string) error {
	if len(args) < 2 {
		if f.modelsMemory != "" {
			return usageErrorf("--models-memory %s: it is for several models, infer serve MODEL MODEL…", f.modelsMemory)
		}
		return f.load.takeModel(a, cmd, args)
	}
	if given := cmd.Flags().Lookup("model"); given.Changed && !filled(given) || f.load.hfRepo != "" {
		return usageErrorf("models as arguments and by --model: name all as arguments")
	}
	for name, given := range map[string]bool{"tier": len(f.kv.tiers) > 0, "lora": len(f.load.loras) > 0, "chat-template": f.load.templateFile != "", "trace": f.traces.dir != ""} {
		if given {
			return usageErrorf("--%s is of one model; %d are served", name, len(args))
		}
	}
	for i, name := range args {
		if slices.Contains(args[:i], name) {
			return usageErrorf("model %s is named twice", name)
		}
	}
	f.models = args
	return nil
}

// several opens a fleet of the models. Each is opened for a moment first: what cannot be read is said now.
func (a *app) several(f *serveFlags, common serve.Options) (*serve.Fleet, error) {
	bytes := memlimit.Available() / 4 * 3
	if f.modelsMemory != "" {
		var err error
		if bytes, err = units.ParseBytes(f.modelsMemory); err != nil || bytes <= 0 {
			return nil, usageErrorf("--models-memory %s: want a size such as 8GiB", f.modelsMemory)
		}
	}
	encoders, closeEncoder, err := a.serveEncoder(f)
	if err != nil {
		return nil, err
	}
	common.Encoders = encoders
	o := serve.FleetOptions{Bytes: bytes, Front: common}
	for i, name := range f.models {
		m, err := a.member(f, name, i == 0, common)
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
	a.notice("%d models are loaded when they are asked for, together in at most %s (--models-memory)", len(f.models), units.FormatBytes(bytes))
	return fleet, nil
}

// member is one model of a fleet; the names of --alias are the first's.
func (a *app) member(f *serveFlags, name string, first bool, o serve.Options) (m serve.Member, err error) {
	of := *f
	of.load.model, of.load.texts = name, f.batch
	if !first {
		of.aliases = nil
	}
	l, err := a.openFile(&of.load)
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
		l, err := a.openKVEngine(&own.load, &own.kv)
		if err != nil {
			return nil, nil, err
		}
		s, err := a.onStore(f, &own, l, o)
		if err != nil {
			l.close()
			return nil, nil, err
		}
		return s, l.close, nil
	}
	return m, nil
}

// onStore is the server of a loaded model on the store that all members share.
func (a *app) onStore(f, own *serveFlags, l *loaded, o serve.Options) (*serve.Server, error) {
	if err := a.useStore(&f.store, l); err != nil {
		return nil, err
	}
	if !f.deterministic {
		f.store.cache.KeepAnswers()
	}
	return own.server(l, o)
}
