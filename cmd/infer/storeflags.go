package main

import (
	"os"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/engine/shelf"
	"terrace/internal/tierspec"
	"terrace/kvmanager/contexts"
	"terrace/kvmanager/values"
	"terrace/policy"
)

// storeFlags say which contexts outlive the process.
type storeFlags struct {
	stores []string
	salt   string
	fetch  string
	write  string
	unsaid bool               // nobody has asked for one: what it is of no use to is no news
	store  *contexts.Store    // once it is open
	cache  *prefixcache.Cache // of the last engine that uses it; nil = none does

	place     string            // --placement
	placement *policy.Placement // which says what the store keeps; nil = what was used last
	keeper    *shelf.Keeper     // keeps it so; nil = nobody does
	closing   func() error      // of the keeper
}

func (f *storeFlags) add(cmd *cobra.Command) {
	f.addStores(cmd)
	cmd.Flags().StringVar(&f.salt, "cache-salt", "", "what is stored under a salt is found under that salt only")
}

// addStores adds --store with the stores that hold where none is given.
func (f *storeFlags) addStores(cmd *cobra.Command, unless ...string) {
	cmd.Flags().StringArrayVar(&f.stores, "store", unless, "keep the KV of prompts for later runs, fastest first: "+tierspec.Forms(tierspec.Stored)+", each may end in ,RATE/s (repeats)")
	cmd.Flags().StringVar(&f.fetch, "store-fetch", "deadline", "how long a store is waited for before the rest is computed: best-effort, deadline (2s and 1s more for each 1k tokens) or wait")
	cmd.Flags().StringVar(&f.write, "store-write", "through", "what goes to the stores after the first: through (all), on-hit (what was used) or back (what gives way on the one before, and the rest at the end)")
}

// specs reads --store.
func (f *storeFlags) specs() ([]contexts.Spec, error) {
	if _, err := contexts.ParseRule(f.fetch); err != nil {
		return nil, usageErrorf("--store-fetch: %v", err)
	}
	if _, err := contexts.ParseWrite(f.write); err != nil {
		return nil, usageErrorf("--store-write: %v", err)
	}
	return parseStores(f.stores)
}

// hostBytes is the memory that stores may take beside that of running texts; a wrong --store takes none, which specs says.
func (f *storeFlags) hostBytes() (bytes int64) {
	specs, _ := parseStores(f.stores)
	for _, s := range specs {
		if s.Kind == tierspec.Host && !s.Lent {
			bytes += s.CapacityBytes
		}
	}
	return bytes
}

func parseStores(texts []string) ([]contexts.Spec, error) {
	var specs []contexts.Spec
	for _, text := range texts {
		s, err := tierspec.Parse(text)
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
	return contexts.Options{Notice: func(line string) { a.notice("%s", line) }, Access: values.Access{User: os.Getenv("VALKEY_USERNAME"), Password: os.Getenv("VALKEY_PASSWORD"), AccessKey: os.Getenv("AWS_ACCESS_KEY_ID"), SecretKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), Region: os.Getenv("AWS_REGION")}}
}

// useStore gives an engine the store that the flags name, opened at the first. A store that cannot be opened, or is of no use to
// the engine, costs a notice. Close it by the flags' close.
func (a *app) useStore(f *storeFlags, l *loaded) error {
	specs, err := f.specs()
	if err != nil || len(specs) == 0 {
		return err
	}
	if f.store == nil {
		o := a.storeOptions()
		o.Rule, _ = contexts.ParseRule(f.fetch) // specs has looked at both
		o.Write, _ = contexts.ParseWrite(f.write)
		if f.placement != nil {
			o.Write = contexts.WritePlaced
		}
		store, trouble := contexts.Open(a.ctx, specs, o)
		if trouble != nil {
			a.notice("%s: going on without it", oneLine(trouble))
		}
		f.store = store
	}
	if f.cache, err = prefixcache.Use(l.engine, f.store, l.name); err != nil {
		return err
	}
	if why := f.cache.Unfit(l.engine.Policy()); why != "" && !f.store.Empty() && !f.unsaid {
		a.notice("--store is not used: %s", why)
	}
	return nil
}

// close ends the store, once what is being stored is.
func (f *storeFlags) close(a *app) {
	if f.closing != nil {
		if err := f.closing(); err != nil {
			a.notice("placement: %s", oneLine(err))
		}
	}
	if err := f.store.Close(); err != nil {
		a.notice("store: %s", oneLine(err))
	}
}

// find begins to fetch what the store has of a prompt.
func (f *storeFlags) find(a *app, ids []int, under *policy.Spec) engine.Prefix {
	if f.keeper != nil {
		return f.keeper.Lookup(a.ctx, ids, under, f.salt)
	}
	return f.cache.Find(a.ctx, ids, under, f.salt)
}

// source is what times are where so much came from the store: modelled where its reads are held to a rate, else empty.
func (f *storeFlags) source(reused engine.Reused) string {
	if reused.Tokens > 0 && f.store.Modelled() {
		return "modelled"
	}
	return ""
}
