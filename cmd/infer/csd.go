package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"terrace/csdshim"
	"terrace/csdshim/attend"
	"terrace/csdshim/profiles"
	"terrace/internal/clock"
	"terrace/internal/units"
)

func init() { register(newCSD) }

func newCSD(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "csd",
		Args:  noCommand,
		Short: "A computational storage drive: stores KV pages and scores keys where they lie",
		RunE: func(cmd *cobra.Command, args []string) error {
			return usageErrorf("csd: say what: serve, replay or stats, 'infer csd --help'")
		},
	}
	cmd.AddCommand(newCSDServe(a), newCSDReplay(a), newCSDStats(a))
	return cmd
}

// csdServe is `infer csd serve`.
type csdServe struct {
	*app

	dir, capacity, socket, profile, clock, keys string
	core                                        int
	faults                                      []string
	seed                                        uint64
	noSync                                      bool
}

func newCSDServe(a *app) *cobra.Command {
	c := &csdServe{app: a}
	cmd := &cobra.Command{
		Use:   "serve --dir D --socket S",
		Short: "Run one computational storage drive until it is interrupted",
		Long: "Runs a drive that mimics the hardware of a profile: flash with a KV-aware translation layer, a small DRAM, a scoring engine on one core and a link to the host. " +
			"It keeps its state in a folder, over restarts and kills, and serves 'infer generate --tier csd=unix:SOCKET' and others, several at once. " +
			"With --clock real its traffic takes the time that the profile gives; with --clock virtual that time is only accounted.",
		Example: "  infer csd serve --dir /data/csd --capacity 8GiB --socket /run/user/1000/csd0.sock --profile smartssd\n  infer csd serve --dir d --socket s --profile my-drive.toml --clock virtual",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run() },
	}
	fl := cmd.Flags()
	fl.StringVar(&c.dir, "dir", "", "folder of the drive's state, made if it is not there")
	fl.StringVar(&c.capacity, "capacity", "8GiB", "what the drive holds; fixed when the folder is made")
	fl.StringVar(&c.socket, "socket", "", "Unix socket to serve, for this user only")
	fl.StringVar(&c.profile, "profile", "smartssd", "hardware to mimic: "+strings.Join(profiles.Names(), ", ")+", or a TOML file")
	fl.StringVar(&c.clock, "clock", "real", "real: traffic takes the profile's time; virtual: the time is only accounted")
	fl.StringVar(&c.keys, "keys", "ddr", "where scoring reads the key codes: ddr (the drive's memory, as far as they fit; an assumption, HillInfer's paper does not say) or nand")
	fl.IntVar(&c.core, "core", -1, "keep the drive on this CPU core; -1 lets it run on any")
	fl.BoolVar(&c.noSync, "no-sync", false, "acknowledge writes before they are on the disk: they survive the drive's death, not the machine's")
	fl.StringArrayVar(&c.faults, "fault", nil, "for tests, something to do wrong, may repeat: stall:on=score,after=10,times=1,for=2s, or disconnect:on=score,frames=3; kinds are stall, slow, disconnect, short, garbage, flip, twice, fail, version, corrupt")
	fl.Uint64Var(&c.seed, "fault-seed", 1, "seed of --fault")
	return cmd
}

// options reads the flags.
func (c *csdServe) options() (o csdshim.Options, err error) {
	if c.dir == "" || c.socket == "" {
		return o, usageErrorf("csd serve: --dir and --socket are needed")
	}
	for _, path := range []string{c.dir, c.socket} {
		if err := parentThere(path); err != nil {
			return o, usageErrorf("csd serve: %v", err)
		}
	}
	if o.CapacityBytes, err = units.ParseBytes(c.capacity); err != nil {
		return o, usageErrorf("csd serve: --capacity: %v", err)
	}
	if o.Profile, err = profiles.Load(c.profile); err != nil {
		return o, usageErrorf("csd serve: %v", err)
	}
	if err := o.Profile.CheckCapacity(o.CapacityBytes); err != nil {
		return o, usageErrorf("csd serve: --capacity %s: %v", c.capacity, err)
	}
	o.NoSync, o.Faults.Seed, o.Attention = c.noSync, c.seed, attend.New()
	for _, text := range c.faults {
		rule, err := csdshim.ParseFault(text)
		if err != nil {
			return o, usageErrorf("csd serve: --fault: %v", err)
		}
		o.Faults.Rules = append(o.Faults.Rules, rule)
	}
	switch c.clock {
	case "real":
		o.Clock = clock.Real()
	case "virtual":
	default:
		return o, usageErrorf("csd serve: --clock %q: want real or virtual", c.clock)
	}
	switch c.keys {
	case "ddr":
	case "nand":
		o.Keys = csdshim.KeysNAND
	default:
		return o, usageErrorf("csd serve: --keys %q: want ddr or nand", c.keys)
	}
	return o, nil
}

func (c *csdServe) run() error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if c.core >= 0 {
		if err := csdshim.PinToCore(c.core); err != nil {
			return err
		}
	}
	d, err := csdshim.OpenDrive(c.dir, o)
	if err != nil {
		return err
	}
	defer d.Close()
	l, err := csdshim.Listen(c.socket)
	if err != nil {
		return err
	}
	id := d.Identity()
	c.notice("csd: %s at %s: %s of %s in use, keys in %s, %s clock", id.Profile, c.socket, units.FormatBytes(int64(id.UsedBytes)), units.FormatBytes(int64(id.CapacityBytes)), id.Keys, id.Clock)
	if err := d.Serve(c.ctx, l, csdshim.ServerOptions{Log: func(line string) { fmt.Fprintln(c.stderr, "infer: "+line) }}); err != nil {
		return err
	}
	return c.ctx.Err()
}
