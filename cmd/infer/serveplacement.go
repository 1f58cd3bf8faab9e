package main

import (
	"fmt"
	"maps"
	"slices"

	"terrace/engine/shelf"
	"terrace/internal/units"
	"terrace/policy"
)

// answerTokens is how long the answers are by which a server measures what compressing costs.
const answerTokens = 32

// place reads --store and --placement.
func (c *serveCommand) place() error {
	specs, err := c.store.specs()
	if err != nil {
		return err
	}
	p, err := policy.ParsePlacement(c.placement)
	if err != nil {
		return usageErrorf("--placement: %v", err)
	}
	switch p.Kind {
	case policy.PlaceLRU:
		return nil
	case policy.PlaceNone:
		if len(c.store.stores) > 0 {
			return usageErrorf("--placement none: nothing would be kept: leave --store out")
		}
		return nil
	case policy.PlaceImpress:
		return usageErrorf("--placement %s: a server loads whole contexts: want lru, evicpress, fixed or none; 'infer eval --suite contexts' runs %s", c.placement, p.Kind)
	}
	switch {
	case c.deterministic:
		return usageErrorf("--placement %s compresses contexts, which changes texts: leave --deterministic out", c.placement)
	case len(c.models) > 1:
		return usageErrorf("--placement %s is of one model; %d are served", c.placement, len(c.models))
	case len(specs) == 0:
		return usageErrorf("--placement %s needs a --store, such as host=1GiB", c.placement)
	case c.store.write != "through":
		return usageErrorf("--store-write %s: --placement %s says what lies where", c.store.write, c.placement)
	}
	for _, s := range specs {
		if s.Kind != "host" && s.Kind != "ssd" {
			return usageErrorf("--placement %s: --store %s=%s is shared with other processes: want host and ssd", c.placement, s.Kind, s.Place)
		}
	}
	c.store.placement = &p
	return nil
}

// keepContexts has contexts kept as --placement says, in the store that the engine has.
func (c *serveCommand) keepContexts(l *loaded) error {
	f := &c.store
	o := shelf.KeeperOptions{Store: f.store, Placement: *f.placement, Notice: func(line string) { c.notice("%s", line) }}
	specs, err := f.specs()
	if err != nil {
		return err
	}
	for _, s := range specs {
		if s.Kind == "ssd" {
			o.Index = s.Place
		}
	}
	quality, closeQuality, err := c.openQuality(&contextFlags{quality: "auto", encoder: defaultEncoder}, c.load.threads)
	if err != nil {
		return err
	}
	o.Reader = &shelf.Reader{Engine: l.engine, Cache: f.cache, Tokenizer: l.tok, Quality: quality, MaxTokens: answerTokens}
	k, err := shelf.NewKeeper(o)
	if err != nil {
		closeQuality()
		return usageErrorf("%v", err)
	}
	f.closing = func() error {
		closeQuality()
		return k.Close()
	}
	return nil
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
