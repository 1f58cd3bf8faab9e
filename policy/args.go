package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"terrace/internal/units"
)

// Param documents one parameter of a policy.
type Param struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases,omitempty"`
	Default string   `json:"default"` // as it would be written; empty: nothing unless given
	Doc     string   `json:"doc"`
}

func (p Param) is(key string) bool { return p.Name == key || slices.Contains(p.Aliases, key) }

// budgetParams are the two ways of saying how much is kept; at most one may be given.
func budgetParams(byDefault string) []Param {
	return []Param{
		{Name: "budget", Default: byDefault, Doc: "what is kept: a fraction below 1, 20%, tokens (1024, 1k) or bytes over the layers that it acts on (64MiB)"},
		{Name: "ratio", Aliases: []string{"compression_ratio"}, Doc: "instead of budget: the part of the prompt that is removed, from 0 and below 1"},
	}
}

// args are the parameters of one policy in one specification. Getters collect errors; err joins them.
type args struct {
	info  Info
	given map[string]string // by canonical name
	order []string          // canonical names as given
	inner *term             // of a wrapper
	errs  []error
}

// raw is the text of a parameter, given or default.
func (a *args) raw(name string) string {
	if v, ok := a.given[name]; ok {
		return v
	}
	for _, p := range a.info.Params {
		if p.Name == name {
			return p.Default
		}
	}
	panic("policy: " + a.info.Name + " asks for a parameter that it does not declare: " + name)
}

func (a *args) has(name string) bool { _, ok := a.given[name]; return ok }

func (a *args) fail(name, want string, cause error) {
	err := fmt.Errorf("policy: %s: %s=%s: want %s: %w", a.info.Name, name, a.raw(name), want, ErrParam)
	if cause != nil {
		err = fmt.Errorf("policy: %s: %s=%s: %w: %w", a.info.Name, name, a.raw(name), cause, ErrParam)
	}
	a.errs = append(a.errs, err)
}

// int reads a count (k = 1024) from lo to hi.
func (a *args) int(name string, lo, hi int) int {
	n, err := units.ParseCount(a.raw(name))
	if err != nil || n < lo || n > hi {
		want := fmt.Sprintf("a whole number from %d", lo)
		if hi < math.MaxInt32 {
			want += fmt.Sprintf(" to %d", hi)
		}
		a.fail(name, want, nil)
		return lo
	}
	return n
}

// float reads a decimal number (or a percentage) from lo to hi.
func (a *args) float(name string, lo, hi float64) float64 {
	text, percent := strings.CutSuffix(a.raw(name), "%")
	f, err := strconv.ParseFloat(text, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= lo && f <= hi) {
		a.fail(name, fmt.Sprintf("a number from %g to %g", lo, hi), nil)
		return lo
	}
	return f
}

// bool reads true or false (also 1, 0, yes, no in any case, and Python's True and False).
func (a *args) bool(name string) bool {
	switch strings.ToLower(a.raw(name)) {
	case "true", "1", "yes", "on":
		return true
	case "false", "0", "no", "off":
		return false
	}
	a.fail(name, "true or false", nil)
	return false
}

// choice reads one of the names given and returns its index.
func (a *args) choice(name string, of ...string) int {
	i := slices.Index(of, strings.ToLower(a.raw(name)))
	if i < 0 {
		a.fail(name, "one of "+strings.Join(of, ", "), nil)
		return 0
	}
	return i
}

// ints reads a list of counts `10/20/30`; empty text is no list.
func (a *args) ints(name string) []int {
	var out []int
	for _, s := range a.list(name) {
		n, err := units.ParseCount(s)
		if err != nil {
			a.fail(name, "counts divided by /, such as 10/20/30", nil)
			return nil
		}
		out = append(out, n)
	}
	return out
}

// budgets reads a list of budgets `8k/4k/2k` or `50%/25%`.
func (a *args) budgets(name string) []Budget {
	var out []Budget
	for _, s := range a.list(name) {
		b, err := parseBudget(s)
		if err != nil {
			a.fail(name, "", err)
			return nil
		}
		out = append(out, b)
	}
	return out
}

func (a *args) list(name string) []string {
	if text := a.raw(name); text != "" {
		return strings.Split(text, "/")
	}
	return nil
}

// share reads a single budget-like parameter that is not the policy's own budget.
func (a *args) share(name string) Budget {
	raw := a.raw(name)
	switch name {
	case "recent", "local", "rank": // all of a budget or a key is 100%: a bare 1 is one token, or one column
		if strings.TrimSpace(raw) == "1" {
			return tokensBudget(1)
		}
	}
	b, err := parseBudget(raw)
	if err != nil {
		a.fail(name, "", err)
	}
	return b
}

// budget reads the two budget parameters.
func (a *args) budget() Budget {
	if a.has("budget") && a.has("ratio") {
		a.errs = append(a.errs, fmt.Errorf("policy: %s: budget and ratio were both given: want one: %w", a.info.Name, ErrParam))
		return Budget{}
	}
	if !a.has("ratio") {
		return a.share("budget")
	}
	b, err := parseRatio(a.raw("ratio"))
	if err != nil {
		a.fail("ratio", "", err)
	}
	return b
}

// string prints the parameters that were given, in a form that parses back.
func (a *args) string() string {
	var b strings.Builder
	b.WriteString(a.info.Name)
	sep := byte(':')
	put := func(key, value string) {
		b.WriteByte(sep)
		b.WriteString(key + "=" + value)
		sep = ','
	}
	chain := ""
	for t := a.inner; t != nil; t = t.args.inner {
		chain += "/" + t.entry.info.Name
	}
	if chain != "" {
		put(a.info.innerKey(), chain[1:])
	}
	for at := a; at != nil; {
		for _, key := range at.order {
			put(key, at.given[key])
		}
		if at.inner == nil {
			break
		}
		at = at.inner.args
	}
	return b.String()
}

// base is the part that every policy embeds: its name and text.
type base struct{ name, text string }

func (a *args) base() base { return base{a.info.Name, a.string()} }

func (b base) Name() string   { return b.name }
func (b base) String() string { return b.text }
