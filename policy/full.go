package policy

// full keeps and reads everything: the yardstick of every other policy.
type full struct{ base }

func init() {
	register(Info{
		Name:    "full",
		Aliases: []string{"none"},
		Summary: "keeps every token and reads every token",
		Phase:   PhaseControl,
	}, func(a *args) Policy { return &full{a.base()} })
}

func (*full) Needs() Needs { return Needs{} }
