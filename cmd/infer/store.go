package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"terrace/engine/shelf"
	"terrace/internal/tierspec"
	"terrace/internal/units"
	"terrace/kvmanager/contexts"
)

func init() { register(newStore) }

func newStore(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "store",
		Args:    noCommand,
		Short:   "Look after the KV that --store keeps",
		Long:    "Lists, checks and clears what 'generate --store' and others keep: KV of prompts that outlives the process. Give the same --store as there.",
		Example: "  infer store ls --store ssd=/data/kv,8GiB\n  infer store verify --store ssd=/data/kv,8GiB",
		RunE: func(*cobra.Command, []string) error {
			return usageErrorf("store: say what: 'infer store ls --help'")
		},
	}
	cmd.AddCommand(newStoreLs(a), newStoreStats(a), newStoreVerify(a), newStoreRm(a), newStoreGC(a), newStorePlace(a), newStoreProfile(a))
	return cmd
}

// careFlags are those of the commands on stores.
type careFlags struct {
	stores []string
	asJSON bool
}

func (f *careFlags) add(cmd *cobra.Command) *cobra.Command {
	p := cmd.Flags()
	p.StringArrayVar(&f.stores, "store", nil, "the store: "+tierspec.Forms(tierspec.Stored)+" (repeats)")
	p.BoolVar(&f.asJSON, "json", false, "print one JSON object")
	return cmd
}

// open opens the stores; here one that cannot be opened is an error.
func (f *careFlags) open(a *app, readOnly bool) (c contexts.Care, err error) {
	specs, err := parseStores(f.stores)
	if err != nil {
		return c, err
	}
	if len(specs) == 0 {
		return c, usageErrorf("store: want --store, as %s", tierspec.Forms(tierspec.Stored))
	}
	o := a.storeOptions()
	o.ReadOnly = readOnly
	s, err := contexts.Open(a.ctx, specs, o)
	if err != nil {
		_ = s.Close()
		return c, err
	}
	return contexts.Care{Store: s}, nil
}

type listedJSON struct {
	Store  string     `json:"store"`
	Key    string     `json:"key"`
	Model  string     `json:"model"`
	Tokens int        `json:"tokens"`
	Blocks int        `json:"blocks"`
	Bytes  int64      `json:"bytes"`
	Kind   string     `json:"kind"` // prefix, compressed
	Whole  bool       `json:"whole"`
	Used   *time.Time `json:"used"`
}

func newStoreLs(a *app) *cobra.Command {
	f := &careFlags{}
	return f.add(&cobra.Command{
		Use: "ls --store S", Short: "List the contexts in a store", Args: noArgs,
		Long:    "Lists the contexts in a store, the last used first: prefixes of prompts as far as they are kept, and compressed contexts. Bytes of blocks that several prefixes share count for each.",
		Example: "  infer store ls --store ssd=/data/kv,8GiB",
		RunE: func(*cobra.Command, []string) error {
			s, err := f.open(a, true)
			if err != nil {
				return err
			}
			defer s.Close()
			list, err := s.Contexts(a.ctx)
			if err != nil {
				return err
			}
			return a.printListed(list, f.asJSON)
		},
	})
}

func (a *app) printListed(list []contexts.Listed, asJSON bool) error {
	rows := []listedJSON{}
	for _, l := range list {
		r := listedJSON{Store: l.Tier, Key: l.Key.String(), Model: l.Info, Tokens: l.Tokens, Blocks: l.Blocks, Bytes: l.Bytes, Kind: "prefix", Whole: !l.Broken}
		if l.Parts {
			r.Kind = "compressed"
		}
		if !l.Used.IsZero() {
			r.Used = &l.Used
		}
		rows = append(rows, r)
	}
	if asJSON {
		return a.printJSON(map[string]any{"contexts": rows})
	}
	w := a.newTable()
	fmt.Fprintln(w, "KEY\tMODEL\tTOKENS\tBYTES\tKIND\tUSED\tSTORE")
	for _, r := range rows {
		used := "-"
		if r.Used != nil {
			used = r.Used.Format(time.DateTime)
		}
		if !r.Whole {
			r.Kind += ", not whole"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", r.Key[:12], r.Model, r.Tokens, units.FormatBytes(r.Bytes), r.Kind, used, r.Store)
	}
	return w.Flush()
}

type statsJSON struct {
	Name          string `json:"name"`
	CapacityBytes int64  `json:"capacity_bytes"`
	Bytes         int64  `json:"bytes"`
	Blocks        int    `json:"blocks"`
	BlockTokens   int    `json:"block_tokens"`

	Placement map[string]shelf.Figures `json:"placement,omitempty"` // of 'infer serve --placement', by model and settings
}

func newStoreStats(a *app) *cobra.Command {
	f := &careFlags{}
	return f.add(&cobra.Command{
		Use: "stats --store S", Short: "Say how full a store is", Args: noArgs,
		Long:    "Says how many bytes and blocks a store holds, and how many tokens a block of a plain prefix has (0: there is none); of a folder that 'infer serve --placement' keeps also what lies where in which form, as last noted, and what was done.",
		Example: "  infer store stats --store ssd=/data/kv,8GiB --json",
		RunE: func(*cobra.Command, []string) error {
			s, err := f.open(a, true)
			if err != nil {
				return err
			}
			defer s.Close()
			stats, err := s.Stats(a.ctx)
			if err != nil {
				return err
			}
			rows := []statsJSON{}
			for _, x := range stats {
				r := statsJSON{Name: x.Name, CapacityBytes: x.CapacityBytes, Bytes: x.Bytes, Blocks: x.Blocks, BlockTokens: x.BlockTokens}
				if dir, ok := strings.CutPrefix(x.Name, "ssd="); ok {
					if r.Placement, err = shelf.ReadFigures(dir); err != nil {
						return err
					}
				}
				rows = append(rows, r)
			}
			if f.asJSON {
				return a.printJSON(map[string]any{"stores": rows})
			}
			for _, r := range rows {
				fmt.Fprintf(a.stdout, "%s: %s of %s in %d records", r.Name, units.FormatBytes(r.Bytes), units.FormatBytes(r.CapacityBytes), r.Blocks)
				if r.BlockTokens > 0 {
					fmt.Fprintf(a.stdout, ", blocks of %d tokens", r.BlockTokens)
				}
				fmt.Fprintln(a.stdout)
				a.printPlaced(r.Placement)
			}
			return nil
		},
	})
}

func newStoreVerify(a *app) *cobra.Command {
	f := &careFlags{}
	return f.add(&cobra.Command{
		Use: "verify --store S", Short: "Read and check everything in a store", Args: noArgs,
		Long:    "Reads everything in a store and checks it. Ends with 5 where something is damaged, and says what; such records are never used, and 'infer store gc' frees them. What a process that was killed left unfinished is no damage.",
		Example: "  infer store verify --store ssd=/data/kv,8GiB",
		RunE: func(*cobra.Command, []string) error {
			s, err := f.open(a, true)
			if err != nil {
				return err
			}
			defer s.Close()
			good, bad := 0, []string{}
			err = s.Verify(a.ctx, func(x contexts.Finding) {
				if x.Err != nil {
					bad = append(bad, x.What+": "+oneLine(x.Err))
				} else {
					good++
				}
			})
			if err != nil {
				return err
			}
			if f.asJSON {
				if err := a.printJSON(map[string]any{"good": good, "damaged": bad}); err != nil {
					return err
				}
			} else {
				fmt.Fprintf(a.stdout, "%d records are good\n", good)
			}
			if len(bad) > 0 {
				return checkError{fmt.Errorf("%d damaged ('infer store gc' frees them): %s", len(bad), strings.Join(bad[:min(len(bad), 3)], "; "))}
			}
			return nil
		},
	})
}

func newStoreRm(a *app) *cobra.Command {
	f, all := &careFlags{}, false
	cmd := f.add(&cobra.Command{
		Use: "rm KEY… --store S", Short: "Delete contexts from a store",
		Long:    "Deletes contexts by the beginning of their key ('infer store ls'), with the blocks that no other context has; --all deletes everything.",
		Example: "  infer store rm 4f2a9c --store ssd=/data/kv,8GiB\n  infer store rm --all --store ssd=/data/kv,8GiB",
		RunE: func(_ *cobra.Command, args []string) error {
			if all != (len(args) == 0) {
				return usageErrorf("store rm: want the KEY of contexts ('infer store ls' shows them), or --all")
			}
			for _, k := range args {
				if len(k) < 4 || strings.Trim(k, "0123456789abcdef") != "" {
					return usageErrorf("store rm: key %q: want at least 4 hexadecimal digits", k)
				}
			}
			s, err := f.open(a, false)
			if err != nil {
				return err
			}
			defer s.Close()
			if all {
				args = []string{""}
			}
			count, bytes := 0, int64(0)
			for _, k := range args {
				n, freed, err := s.RemoveMatching(a.ctx, k)
				if err != nil {
					return err
				}
				if n == 0 && k != "" {
					return usageErrorf("store rm: no context has a key that begins with %s", k)
				}
				count, bytes = count+n, bytes+freed
			}
			if f.asJSON {
				return a.printJSON(map[string]any{"removed": count, "bytes": bytes})
			}
			a.notice("%d contexts removed, %s freed", count, units.FormatBytes(bytes))
			return nil
		},
	})
	cmd.Flags().BoolVar(&all, "all", false, "delete everything")
	return cmd
}

func newStoreGC(a *app) *cobra.Command {
	f := &careFlags{}
	return f.add(&cobra.Command{
		Use: "gc --store S", Short: "Free what cannot be used", Args: noArgs,
		Long:    "Frees what a store cannot use: damaged records, files that a killed process left unfinished, files of other versions of the format, blocks whose beginning is gone, empty files.",
		Example: "  infer store gc --store ssd=/data/kv,8GiB",
		RunE: func(*cobra.Command, []string) error {
			s, err := f.open(a, false)
			if err != nil {
				return err
			}
			defer s.Close()
			freed, err := s.GC(a.ctx)
			if err != nil {
				return err
			}
			if f.asJSON {
				return a.printJSON(map[string]any{"bytes": freed})
			}
			a.notice("%s freed", units.FormatBytes(freed))
			return nil
		},
	})
}
