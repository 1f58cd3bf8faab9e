package policy

// full keeps and reads everything: the yardstick of every other policy.
type full struct{ base }

func init() {
	register(Info{
		Name:    "full",
		Aliases: []string{"none"},
		Summary: "keeps every token and reads every token",
		Systems: []System{
			{Name: "flexgen", Doc: "on tiers host and ssd: the same first blocks of every layer stay, the rest is streamed a layer ahead (FlexGen, arXiv 2303.06865)"},
			{Name: "deepspeed", Doc: "without a lower tier: host memory holds all KV, the kernel swaps what is beyond usable DRAM (where the system has swap), and a backend with a device streams it layer by layer (--tier device=)"},
		},
		Phase: PhaseControl,
	}, func(a *args) Policy { return &full{a.base()} })
}

func (*full) Needs() Needs { return Needs{} }
