package main

import (
	"os"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/kvmanager/contexts"
	"terrace/policy"
)

// storeFlags say which contexts outlive the process.
type storeFlags struct {
	stores []string
	salt   string
	store  *contexts.Store // once it is open
}

func (f *storeFlags) add(cmd *cobra.Command) {
	f.addStores(cmd)
	cmd.Flags().StringVar(&f.salt, "cache-salt", "", "what is stored under a salt is found under that salt only")
}

func (f *storeFlags) addStores(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.stores, "store", nil, "keep the KV of prompts for later runs, fastest first: "+contexts.Forms()+", each may end in ,RATE/s (repeats)")
}

// specs reads --store.
func (f *storeFlags) specs() ([]contexts.Spec, error) { return parseStores(f.stores) }

func parseStores(texts []string) ([]contexts.Spec, error) {
	var specs []contexts.Spec
	for _, text := range texts {
		s, err := contexts.ParseSpec(text)
		if err != nil {
			return nil, usageErrorf("--store: %v", err)
		}
		specs = append(specs, s)
	}
	if err := contexts.CheckSpecs(specs); err != nil {
		return nil, usageErrorf("--store: %v", err)
	}
	return specs, nil
}

// storeOptions are those of every command that opens a store.
func (a *app) storeOptions() contexts.Options {
	return contexts.Options{Notice: func(line string) { a.notice("%s", line) }, User: os.Getenv("VALKEY_USERNAME"), Password: os.Getenv("VALKEY_PASSWORD"),
		AccessKey: os.Getenv("AWS_ACCESS_KEY_ID"), SecretKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), Region: os.Getenv("AWS_REGION")}
}

// useStore gives an engine the store that the flags name. A store that cannot be opened, or is of no use to the engine, costs a
// notice. close ends it: what is being stored is finished first.
func (a *app) useStore(f *storeFlags, l *loaded) (closeStore func(), err error) {
	specs, err := f.specs()
	if err != nil || len(specs) == 0 {
		return func() {}, err
	}
	store, trouble := contexts.Open(a.ctx, specs, a.storeOptions())
	if trouble != nil {
		a.notice("%s: going on without it", oneLine(trouble))
	}
	if err := l.engine.UseContexts(store, l.name); err != nil {
		_ = store.Close()
		return nil, err
	}
	if why := l.engine.Contexts().Unfit(l.engine.Policy()); why != "" && !store.Empty() {
		a.notice("--store is not used: %s", why)
	}
	f.store = store
	return func() {
		if err := store.Close(); err != nil {
			a.notice("store: %s", oneLine(err))
		}
	}, nil
}

// find begins to fetch what the store has of a prompt.
func (f *storeFlags) find(a *app, e *engine.Engine, ids []int, under *policy.Spec) *engine.Prefix {
	if e.Contexts() == nil {
		return nil
	}
	return e.Contexts().Find(a.ctx, ids, under, f.salt)
}
