package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"terrace/engine/shelf"
	"terrace/internal/units"
	"terrace/policy"
)

// answerTokens is how long the answers are by which a server measures what compressing costs.
const answerTokens = 32

// placementUsage is what --placement takes, where contexts are kept while prompts are answered.
const placementUsage = "lru (prompts, whole; the one used longest ago goes down), evicpress:alpha=A,… (beginnings that prompts share, compressed and placed by utility: texts change), fixed:method=M,keep=K or none"

// addPlacement adds --placement to a command that answers prompts of its own.
func (f *storeFlags) addPlacement(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.place, "placement", "lru", "what --store keeps: "+placementUsage+"; contexts are measured and moved while nothing is answered, before the command ends too (Ctrl-C ends that)")
}

// placed reads --store and --placement.
func (f *storeFlags) placed() error {
	specs, err := f.specs()
	if err != nil {
		return err
	}
	p, err := policy.ParsePlacement(f.place)
	if err != nil {
		return usageErrorf("--placement: %v", err)
	}
	switch p.Kind {
	case policy.PlaceLRU:
		return nil
	case policy.PlaceNone:
		if len(f.stores) > 0 {
			return usageErrorf("--placement none: nothing would be kept: leave --store out")
		}
		return nil
	case policy.PlaceImpress:
		return usageErrorf("--placement %s: whole contexts are loaded here: want lru, evicpress, fixed or none; 'infer eval --suite contexts' runs %s", f.place, p.Kind)
	}
	switch {
	case len(specs) == 0:
		return usageErrorf("--placement %s needs a --store, such as host=1GiB", f.place)
	case f.write != "through":
		return usageErrorf("--store-write %s: --placement %s says what lies where", f.write, f.place)
	}
	for _, s := range specs {
		if s.Kind != "host" && s.Kind != "ssd" {
			return usageErrorf("--placement %s: --store %s=%s is shared with other processes: want host and ssd", f.place, s.Kind, s.Place)
		}
	}
	f.placement = &p
	return nil
}

// placed reads --store and --placement, and refuses what a server cannot do beside a placement that compresses.
func (c *serveCommand) placed() error {
	switch err := c.store.placed(); {
	case err != nil || c.store.placement == nil:
		return err
	case c.deterministic:
		return usageErrorf("--placement %s compresses contexts, which changes texts: leave --deterministic out", c.store.place)
	case len(c.models) > 1:
		return usageErrorf("--placement %s is of one model; %d are served", c.store.place, len(c.models))
	}
	return nil
}

// keepContexts has contexts kept as --placement says, in the store that the engine has; nothing where that is lru.
func (a *app) keepContexts(f *storeFlags, l *loaded, threads int) error {
	if f.placement == nil {
		return nil
	}
	o := shelf.KeeperOptions{Store: f.store, Placement: *f.placement, Notice: func(line string) { a.notice("%s", line) }}
	specs, err := f.specs()
	if err != nil {
		return err
	}
	for _, s := range specs {
		if s.Kind == "ssd" {
			o.Index = s.Place
		}
	}
	quality, closeQuality, err := a.openQuality(&contextFlags{quality: "auto", encoder: defaultEncoder}, threads)
	if err != nil {
		return err
	}
	o.Reader = &shelf.Reader{Engine: l.engine, Cache: f.cache, Tokenizer: l.tok, Quality: quality, MaxTokens: answerTokens}
	if f.keeper, err = shelf.NewKeeper(o); err != nil {
		closeQuality()
		return usageErrorf("%v", err)
	}
	f.closing = func() error {
		closeQuality()
		return f.keeper.Close()
	}
	return nil
}

// openStore is useStore, with contexts kept as --placement says.
func (a *app) openStore(f *storeFlags, l *loaded, threads int) error {
	if err := a.useStore(f, l); err != nil {
		return err
	}
	return a.keepContexts(f, l, threads)
}

// rest has contexts measured and placed until nothing is left to do, or ctx ends.
func (f *storeFlags) rest(ctx context.Context) {
	for f.keeper != nil && ctx.Err() == nil && f.keeper.Work(ctx) {
	}
}

// behind is rest beside something that does not use the engine; call what it returns before anything does.
func (f *storeFlags) behind(ctx context.Context) (stop func()) {
	if f.keeper == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.rest(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// printPlaced prints what keepers of contexts have noted.
func (a *app) printPlaced(of map[string]shelf.Figures) {
	for _, model := range slices.Sorted(maps.Keys(of)) {
		f := of[model]
		fmt.Fprintf(a.stdout, "  placement of %s: %d moves, %d contexts profiled in %.0f s\n", model, f.Moves, f.Profiled, f.ProfileS)
		for _, form := range f.Forms {
			fmt.Fprintf(a.stdout, "    %s, %s %g: %d contexts, %s\n", form.Tier, form.Method, form.Keep, form.Contexts, units.FormatBytes(form.Bytes))
		}
	}
}
