package policy

// Args are the parameters of one policy in one specification, as a program outside this package reads them where it has registered
// the policy. A value that cannot be is an error of [Parse], which wraps [ErrParam]; a name that Info.Params does not declare panics.
type Args struct{ a *args }

// Int reads a count (k = 1024) from lo to hi.
func (p Args) Int(name string, lo, hi int) int { return p.a.int(name, lo, hi) }

// Float reads a decimal number, or a percentage, from lo to hi.
func (p Args) Float(name string, lo, hi float64) float64 { return p.a.float(name, lo, hi) }

// Bool reads true or false.
func (p Args) Bool(name string) bool { return p.a.bool(name) }

// Choice reads one of some words and returns its index.
func (p Args) Choice(name string, of ...string) int { return p.a.choice(name, of...) }

// Budget reads the parameters of [BudgetParams].
func (p Args) Budget() Budget { return p.a.budget() }

// Name is the registered name: what [Policy].Name returns.
func (p Args) Name() string { return p.a.info.Name }

// String is the specification, which [Parse] reads back: what [Policy].String returns.
func (p Args) String() string { return p.a.string() }

// BudgetParams are the two ways of saying how much is kept, budget and ratio, of which one may be given.
func BudgetParams(byDefault string) []Param { return budgetParams(byDefault) }

// Register adds a policy of a program's own, which Info.Name and Info.Aliases then name wherever a specification is read; build makes
// an instance for one text, whose capabilities are found by type assertion, and reads the parameters that Info.Params declares.
// Call it from an init function. A name that is taken, or an Info whose defaults ([Info.Spec]) do not parse, panics.
func Register(info Info, build func(a Args) Policy) {
	register(info, func(a *args) Policy { return build(Args{a}) })
	if _, err := Parse(info.Spec()); err != nil {
		panic("policy: " + info.Name + " refuses its own defaults: " + err.Error())
	}
}

// NewScored is a policy that keeps after the prompt, of each layer and KV head, the tokens with the best scores, as many as its budget
// says ([BudgetParams]; Info.Params has to have them). score fills dst [KVHeads][tokens], higher is kept, from what needs asked for.
func NewScored(a Args, needs Needs, score func(l *Layer, dst [][]float32)) Scored {
	return &scoredBy{scored{base: a.a.base(), budget: a.a.budget()}, needs, score}
}

// scoredBy is a policy of a score alone.
type scoredBy struct {
	scored
	needs Needs
	score func(l *Layer, dst [][]float32)
}

func (p *scoredBy) Needs() Needs { return p.needs }

func (p *scoredBy) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

func (p *scoredBy) Score(l *Layer, _ int, dst [][]float32) { p.score(l, dst) }
