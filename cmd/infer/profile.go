package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/cpuid/v2"
	"github.com/spf13/cobra"

	"terrace/internal/kernels"
	"terrace/internal/storage"
	"terrace/internal/units"
	"terrace/offload"
)

func init() { register(newProfile) }

type profileCommand struct {
	*app

	threads   int
	size      string
	eachMs    int
	rounds    int
	buffered  bool
	noIOUring bool
	asJSON    bool
}

func newProfile(a *app) *cobra.Command {
	c := &profileCommand{app: a}
	cmd := &cobra.Command{
		Use:     "profile [DIR...]",
		Short:   "Measure this host's tiers: key scanning, memory, storage",
		Long:    "Measure how fast this host scans keys (f_c), copies memory (B_c) and reads each directory's storage (B_s), and how near to that the SSD tier comes, in pairs run in turn. The figures are kept in the home folder; the hillinfer policy splits the KV cache by them; where nobody has measured, a run with a drive does so briefly.",
		Example: "  infer profile /data/kv\n  infer profile --json",
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(args) },
	}
	p := cmd.Flags()
	p.IntVarP(&c.threads, "threads", "t", 0, "worker threads (default: one a CPU)")
	p.StringVar(&c.size, "size", "256MiB", "size of each of the two files that are measured on; they are removed")
	p.IntVar(&c.eachMs, "each", 300, "milliseconds a figure takes at least")
	p.IntVar(&c.rounds, "rounds", 5, "pairs of a raw loop and the tier")
	p.BoolVar(&c.buffered, "buffered", false, "through the page cache instead of "+storage.Direct)
	p.BoolVar(&c.noIOUring, "no-io-uring", false, "threads instead of io_uring")
	p.BoolVar(&c.asJSON, "json", false, "print one JSON object")
	return cmd
}

func (c *profileCommand) run(dirs []string) error {
	size, err := units.ParseBytes(c.size)
	if err != nil || size < 16*units.MiB {
		return usageErrorf("--size %s: want at least 16MiB", c.size)
	}
	if c.eachMs < 1 || c.rounds < 1 {
		return usageErrorf("--each %d and --rounds %d: want at least 1", c.eachMs, c.rounds)
	}
	for _, dir := range dirs { // before anything is measured
		if err := parentThere(dir); err != nil {
			return usageErrorf("%v", err)
		}
	}
	each := time.Duration(c.eachMs) * time.Millisecond
	path := offload.ProfileFile(c.home())
	p, err := offload.LoadProfile(path)
	switch {
	case errors.Is(err, offload.ErrShape):
		c.notice("%v: measured again", err)
		p = offload.Profile{}
	case err != nil && !errors.Is(err, offload.ErrMissing):
		return err
	}
	p.Version, p.Source, p.Time = 1, "measured", time.Now().UTC().Format(time.RFC3339)
	p.CPU, p.Kernels = cpuid.CPU.BrandName, kernels.Path()
	p.Host = offload.MeasureHost(offload.HostOptions{Threads: c.threads, Each: each})
	for _, dir := range dirs {
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
		r, err := offload.MeasureStorage(c.ctx, dir, offload.MeasureOptions{SizeBytes: size, Each: each, Rounds: c.rounds, NoDirect: c.buffered, NoRing: c.noIOUring})
		if err != nil {
			return err
		}
		p.Storage = append(slices.DeleteFunc(p.Storage, func(s offload.StorageRates) bool { return s.Dir == dir }), r)
	}
	if err := offload.SaveProfile(path, p); err != nil {
		return err
	}
	if c.asJSON {
		e := json.NewEncoder(c.stdout)
		e.SetIndent("", "  ")
		return e.Encode(p)
	}
	c.notice("kept in %s", path)
	return c.printProfile(p)
}

// printProfile prints what was measured; figures that follow from others are marked.
func (c *profileCommand) printProfile(p offload.Profile) error {
	w := c.newTable()
	rate := func(x float64) string { return fmt.Sprintf("%.2f GB/s", x/1e9) }
	fmt.Fprintf(w, "host\t%s, %s, %d threads\n", p.CPU, p.Kernels, p.Host.Threads)
	for _, e := range []string{"f16", "int8", "int4"} {
		fmt.Fprintf(w, "  f_c, keys scored in %s\t%s of KV\tmeasured\n", e, rate(p.Host.Scan[e]))
	}
	fmt.Fprintf(w, "  B_c, memory to memory\t%s\tmeasured\n", rate(p.Host.Copy))
	for _, s := range p.Storage {
		direct := storage.Direct
		if !s.Direct {
			direct = "page cache"
		}
		fmt.Fprintf(w, "storage\t%s, %s, %s\n", s.Dir, s.Engine, direct)
		if s.Notice != "" {
			fmt.Fprintf(w, "  notice\t%s\n", strings.TrimSpace(s.Notice))
		}
		fmt.Fprintf(w, "  B_s, streaming 256 KiB blocks\t%s\tmeasured\n", rate(s.StreamRead))
		fmt.Fprintf(w, "  f_s, keys read from it\t%s of KV\t2 x B_s\n", rate(2*s.StreamRead))
		fmt.Fprintf(w, "  writing\t%s\tmeasured\n", rate(s.StreamWrite))
		for _, kib := range []string{"4", "12", "16", "64"} {
			fmt.Fprintf(w, "  random reads of %s KiB\t%.0f a second\tmeasured\n", kib, s.Random[kib])
		}
		for _, r := range s.Store {
			fmt.Fprintf(w, "  tier, records of %d KiB, %s\t%s of the raw loop's %s: %.0f%%\tmeasured, %s in %d reads\n", r.RecordBytes>>10, r.Access, rate(r.StoreRate), rate(r.RawRate), 100*r.Ratio, units.FormatBytes(r.Bytes), r.Reads)
		}
	}
	return w.Flush()
}
