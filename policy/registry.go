package policy

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode"

	"terrace/internal/nearest"
)

// Phase says when a policy acts.
type Phase string

const (
	PhaseControl Phase = "control" // a yardstick
	PhasePrompt  Phase = "prompt"  // drops tokens after the prompt
	PhaseDecode  Phase = "decode"  // drops tokens while decoding
	PhaseRead    Phase = "read"    // keeps all, reads few
	PhasePrefill Phase = "prefill" // computes less of the prompt
	PhaseTiers   Phase = "tiers"   // also decides where tokens lie
	PhaseWrapper Phase = "wrapper" // changes how another policy is applied
)

// Info describes a method: what `infer policies`, README and eval sweeps are made from.
type Info struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
	Summary string   `json:"summary"`
	Paper   string   `json:"paper,omitempty"`
	Phase   Phase    `json:"phase"`
	Params  []Param  `json:"params,omitempty"`
	// MayDropNewest: what the prompt ends with has no better chance than other tokens, unless the method is told to keep it.
	MayDropNewest bool `json:"may_drop_newest,omitempty"`
	// Ranked: its choice is the beginning of one order, whatever its budget ([Ranker]).
	Ranked bool `json:"-"`
	// MayDropSinks: first tokens that the wrapped policy always keeps have no such right here.
	MayDropSinks bool `json:"may_drop_sinks,omitempty"`
	// Wraps is the name of the policy that a wrapper holds when none is given; empty for others.
	Wraps string `json:"wraps,omitempty"`
	// Inner is the parameter that names it; empty is press.
	Inner string `json:"inner,omitempty"`
	// Budget is the parameter that says how much is kept or read, where it is not budget.
	Budget string `json:"budget,omitempty"`
	// Example holds the parameters that must be given; empty where the defaults will do.
	Example string `json:"example,omitempty"`
	// Systems are names of the field for a system that is this method with some parameters, beside tiers; Parse takes them.
	Systems []System `json:"systems,omitempty"`
	// Can and Sees name the capabilities and the needs with default parameters; filled by the registry.
	Acts string   `json:"acts_on"` // on which layers; filled by the registry
	Can  []string `json:"can,omitempty"`
	Sees []string `json:"needs,omitempty"`
}

// System is what others call a method with parameters.
type System struct {
	Name   string `json:"name"`
	Params string `json:"params,omitempty"` // those that are given where the user gives none
	Doc    string `json:"doc"`
}

// BudgetParam is the parameter by which the policy that a specification begins with is told how much it keeps or reads.
func BudgetParam(spec string) string {
	name, _, _ := strings.Cut(spec, ":")
	if e, err := lookUp(strings.TrimSpace(name)); err == nil && e.info.Budget != "" {
		return e.info.Budget
	}
	return "budget"
}

// Spec is the specification that a system's name stands for.
func (s System) Spec(method string) string { return strings.TrimSuffix(method+":"+s.Params, ":") }

// innerKey is the parameter by which a wrapper names what it wraps.
func (i Info) innerKey() string {
	if i.Inner == "" {
		return "press"
	}
	return i.Inner
}

// Spec is the shortest specification that parses.
func (i Info) Spec() string {
	if i.Example == "" {
		return i.Name
	}
	return i.Name + ":" + i.Example
}

type entry struct {
	info Info
	make func(a *args) Policy
}

var registry = map[string]*entry{}

// systems are the parameters of the names in Info.Systems.
var systems = map[string]string{}

// register adds a method; called from the init of its file. A name or alias that is taken is a bug.
func register(info Info, make func(a *args) Policy) {
	e := &entry{info, make}
	for _, name := range append([]string{info.Name}, info.Aliases...) {
		if registry[plain(name)] != nil {
			panic("policy: registered twice: " + name)
		}
		registry[plain(name)] = e
	}
	for _, s := range info.Systems {
		if registry[plain(s.Name)] != nil {
			panic("policy: registered twice: " + s.Name)
		}
		registry[plain(s.Name)], systems[plain(s.Name)] = e, s.Params
	}
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "")

// plain is the form that names are compared in: `SnapKVPress`, `snap-kv` and `snapkv` are one.
func plain(name string) string {
	name = separators.Replace(strings.ToLower(name))
	return strings.TrimSuffix(name, "press")
}

// Names lists the registered names.
func Names() []string {
	var names []string
	for key, e := range registry {
		if key == plain(e.info.Name) {
			names = append(names, e.info.Name)
		}
	}
	sort.Strings(names)
	return names
}

// aliases are the other names of the registered methods.
func aliases() []string {
	var out []string
	for key, e := range registry {
		if key == plain(e.info.Name) {
			out = append(out, e.info.Aliases...)
			for _, s := range e.info.Systems {
				out = append(out, s.Name)
			}
		}
	}
	sort.Strings(out)
	return out
}

// Infos describes every registered method, by phase and name.
func Infos() []Info {
	phases := []Phase{PhaseControl, PhasePrompt, PhaseWrapper, PhaseDecode, PhaseRead, PhaseTiers, PhasePrefill}
	var out []Info
	for _, name := range Names() {
		info := registry[plain(name)].info
		spec, err := Parse(info.Spec())
		if err != nil {
			panic("policy: " + name + " refuses its own defaults: " + err.Error())
		}
		set := spec.checked
		info.Acts, info.Can, info.Sees = ActsOn, capabilities(set.Parts[0]), set.sees()
		if set.trained() {
			info.Acts = "layers that have index keys; others stay whole"
		}
		out = append(out, info)
	}
	sort.SliceStable(out, func(i, j int) bool {
		return slices.Index(phases, out[i].Phase) < slices.Index(phases, out[j].Phase)
	})
	return out
}

// term is one policy of a specification with its parameters.
type term struct {
	entry *entry
	args  *args
}

// build makes a fresh instance; the parameters have been checked by parse.
func (t *term) build() Policy { return t.entry.make(t.args) }

// Spec is a checked specification: policies with parameters, joined by +.
type Spec struct {
	terms   []*term
	checked *Set // an instance without a model, to ask what any is; nobody reads a text under it
}

// Parse reads `name:key=value,key=value`, joined by `+`. Names and keys take kvpress's spellings. A wrapper names what it
// wraps as `press=NAME` or as its first item (`adakv:snapkv,ratio=0.5`, `decoding:knorm:target_size=1k`) and hands on
// the keys that it does not know. Empty text is `full`. Errors wrap [ErrUnknown], [ErrParam] or [ErrClash].
func Parse(text string) (*Spec, error) {
	if strings.TrimSpace(text) == "" {
		text = "full"
	}
	s := &Spec{}
	for part := range strings.SplitSeq(text, "+") {
		name, rest, _ := strings.Cut(strings.TrimSpace(part), ":")
		e, err := lookUp(name)
		if err != nil {
			return nil, err
		}
		items, err := splitItems(e.info.Name, rest)
		if err != nil {
			return nil, err
		}
		t, err := newTerm(name, items)
		if err != nil {
			return nil, err
		}
		s.terms = append(s.terms, t)
	}
	var err error
	if s.checked, err = s.build(nil); err != nil {
		return nil, err
	}
	return s, nil
}

type item struct{ key, value string }

// positional is the key of a first item without =, which names what a wrapper wraps.
const positional = ""

// splitItems cuts `a=1,b=2`; a first item without = comes back as positional.
func splitItems(name, text string) ([]item, error) {
	var items []item
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if inner, rest, ok := strings.Cut(text, ":"); ok && !strings.ContainsAny(inner, "=,") {
		text = inner + "," + rest
	}
	for i, part := range strings.Split(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok && i == 0 && key != "" {
			key, value = positional, key
		} else if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("policy: %s: %q: want key=value: %w", name, part, ErrParam)
		}
		if strings.ContainsFunc(key+value, unicode.IsControl) {
			return nil, fmt.Errorf("policy: %s: %q holds a control character: want key=value on one line: %w", name, part, ErrParam)
		}
		items = append(items, item{key, value})
	}
	return items, nil
}

// Canonical is the registered name of the method that a specification begins with, whose parameters are not looked at. Errors wrap
// [ErrUnknown].
func Canonical(text string) (string, error) {
	name, _, _ := strings.Cut(strings.TrimSpace(text), ":")
	e, err := lookUp(name)
	if err != nil {
		return "", err
	}
	return e.info.Name, nil
}

func lookUp(name string) (*entry, error) {
	e := registry[plain(name)]
	if e == nil {
		return nil, fmt.Errorf("policy: %q%s: known are %s: %w", name, nearest.Hint(name, slices.Concat(Names(), aliases())), strings.Join(Names(), ", "), ErrUnknown)
	}
	return e, nil
}

// wrapsMost is how many policies may be wrapped in one another.
const wrapsMost = 8

// newTerm looks the name up, gives each item to the policy or to the one it wraps, and checks the values.
func newTerm(name string, items []item) (*term, error) {
	e, err := lookUp(name)
	if err != nil {
		return nil, err
	}
	a := &args{info: e.info, given: map[string]string{}}
	var rest []item
	inner := e.info.Wraps
	for _, it := range items {
		at := slices.IndexFunc(e.info.Params, func(p Param) bool { return p.is(it.key) })
		switch {
		case e.info.Wraps == "" && it.key == positional:
			return nil, fmt.Errorf("policy: %s: %q: want key=value: %w", e.info.Name, it.value, ErrParam)
		case e.info.Wraps != "" && (it.key == positional || it.key == "press" || it.key == e.info.Inner || it.key == "policy" || it.key == "base_press"):
			first, deeper, ok := strings.Cut(it.value, "/")
			if inner = strings.TrimSpace(first); inner == "" || ok && strings.TrimSpace(deeper) == "" {
				return nil, fmt.Errorf("policy: %s: %q names no policy to wrap: want one, as in %s:%s: %w", e.info.Name, it.value, e.info.Name, e.info.Wraps, ErrParam)
			}
			if strings.Count(deeper, "/") > wrapsMost { // what follows recurses once a name
				return nil, fmt.Errorf("policy: %s wraps more than %d policies in one another: %w", e.info.Name, wrapsMost, ErrParam)
			}
			if ok {
				rest = append(rest, item{"press", deeper})
			}
		case at >= 0:
			key := e.info.Params[at].Name
			if a.has(key) {
				return nil, fmt.Errorf("policy: %s: %s was given twice: %w", e.info.Name, key, ErrParam)
			}
			a.given[key] = it.value
			a.order = append(a.order, key)
		case e.info.Wraps != "":
			rest = append(rest, it)
		default:
			return nil, unknownKey(e, it.key)
		}
	}
	for it := range strings.SplitSeq(systems[plain(name)], ",") {
		if key, value, ok := strings.Cut(it, "="); ok && !a.has(key) {
			a.given[key], a.order = value, append(a.order, key)
		}
	}
	if inner != "" {
		t, err := newTerm(inner, rest)
		if err != nil {
			return nil, fmt.Errorf("policy: %s of %s: %w", e.info.Name, inner, err)
		}
		a.inner = t
	}
	t := &term{e, a}
	if t.depth() > wrapsMost {
		return nil, fmt.Errorf("policy: %s wraps more than %d policies in one another: %w", e.info.Name, wrapsMost, ErrParam)
	}
	if t.build(); len(a.errs) > 0 {
		return nil, a.errs[0]
	}
	return t, nil
}

// depth is how many policies are wrapped in one another, this one among them.
func (t *term) depth() int {
	n := 1
	for in := t.args.inner; in != nil; in = in.args.inner {
		n++
	}
	return n
}

func unknownKey(e *entry, key string) error {
	keys := make([]string, len(e.info.Params))
	var also []string
	for i, p := range e.info.Params {
		keys[i] = p.Name
		also = append(also, p.Aliases...)
	}
	known := "it has no parameters"
	if len(keys) > 0 {
		known = "known are " + strings.Join(keys, ", ")
	}
	return fmt.Errorf("policy: %s: unknown parameter %q%s: %s: %w", e.info.Name, key, nearest.Hint(key, slices.Concat(keys, also)), known, ErrParam)
}

// String is the specification in canonical names, as Parse reads it back.
func (s *Spec) String() string {
	texts := make([]string, len(s.terms))
	for i, t := range s.terms {
		texts[i] = t.args.string()
	}
	return strings.Join(texts, "+")
}

// New makes fresh instances for one sequence on a model. Errors wrap [ErrModel].
func (s *Spec) New(m Model) (*Set, error) { return s.build(&m) }

// Needs is what instances of the specification will ask for, before a model is known.
func (s *Spec) Needs() Needs { return s.checked.Needs() }

// OwnRows is [Set.OwnRows] of the specification.
func (s *Spec) OwnRows() (rows int, ok bool) { return s.checked.OwnRows() }

// Watches reports whether sessions under the specification see the queries of the prompt as they come ([Watcher]).
func (s *Spec) Watches() bool { return s.checked.Watcher != nil }

// Rereads reports whether sessions under the specification read their prompt a second time ([Reconstructor]), asked for it in words.
func (s *Spec) Rereads() bool {
	r := s.checked.Rereader
	return r != nil && !r.Repeats(1, 1).Plain
}

// Follows reports whether sessions under the specification bring pruned tokens back while decoding, and in which blocks: 1
// for single tokens.
func (s *Spec) Follows() (blockTokens int, ok bool) {
	set := s.checked
	if !set.Follows() {
		return 0, false
	}
	if set.Swapper != nil {
		return set.Swapper.BlockTokens(), true
	}
	return 1, true
}

// Lossless reports whether nothing of the specification changes what attention sees: `full`.
func (s *Spec) Lossless() bool { return s.checked.Lossless() }

// Causal is [Set.Causal] of the specification.
func (s *Spec) Causal() bool { return s.checked.Causal() }

// AttendsOnDrives reports whether a drive can compute what decode steps attend to ([DriveAttention]), alone in its set.
func (s *Spec) AttendsOnDrives() bool {
	_, ok := s.checked.Selector.(DriveAttention)
	return ok && len(s.checked.Parts) == 1
}

// DropsEachStep reports whether tokens go at every decode step, and not only at some ([Scheduler]) or after the prompt.
func (s *Spec) DropsEachStep() bool {
	_, seldom := s.checked.Dropper.(Scheduler)
	return s.checked.Dropper != nil && !seldom
}

func (s *Spec) build(m *Model) (*Set, error) {
	set := &Set{text: s.String()}
	for _, t := range s.terms {
		p := t.build()
		if b, ok := p.(Binder); ok && m != nil {
			if err := b.Bind(*m); err != nil {
				return nil, err
			}
		}
		if err := set.add(p); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// Name is the canonical name of the first policy.
func (s *Spec) Name() string { return s.terms[0].entry.info.Name }
