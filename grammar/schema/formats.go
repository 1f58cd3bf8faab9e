package schema

import (
	"fmt"
	"sync"

	"terrace/grammar"
	"terrace/grammar/automaton"
)

const (
	dayPattern    = `(((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8])))`
	datePattern   = `(\d{4}-` + dayPattern + `|(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)`
	offsetPattern = `([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)`
	timePattern   = `(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?` + offsetPattern + `|23:59:60(\.\d{1,9})?[Zz])`
	labelPattern  = `[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?`
	hostPattern   = labelPattern + `(\.` + labelPattern + `)*`
	atomPattern   = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
	octetPattern  = `(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	ipv4Pattern   = octetPattern + `(\.` + octetPattern + `){3}`
	hexPattern    = `[0-9A-Fa-f]`
	groupPattern  = hexPattern + `{1,4}`
	lastPattern   = `(` + groupPattern + `:` + groupPattern + `|` + ipv4Pattern + `)`
	ipv6Pattern   = `((` + groupPattern + `:){6}` + lastPattern + `|::(` + groupPattern + `:){5}` + lastPattern +
		`|(` + groupPattern + `)?::(` + groupPattern + `:){4}` + lastPattern + `|((` + groupPattern + `:){0,1}` + groupPattern + `)?::(` + groupPattern + `:){3}` + lastPattern +
		`|((` + groupPattern + `:){0,2}` + groupPattern + `)?::(` + groupPattern + `:){2}` + lastPattern + `|((` + groupPattern + `:){0,3}` + groupPattern + `)?::` + groupPattern + `:` + lastPattern +
		`|((` + groupPattern + `:){0,4}` + groupPattern + `)?::` + lastPattern + `|((` + groupPattern + `:){0,5}` + groupPattern + `)?::` + groupPattern + `|((` + groupPattern + `:){0,6}` + groupPattern + `)?::)`
	pointerPattern = `(/([^~/]|~[01])*)*`
	durationTime   = `T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)`
)

// uri is the expression of RFC 3986, or of RFC 3987 where other characters than ASCII may stand.
func uri(other string, relative bool) string {
	pct := `%` + hexPattern + `{2}`
	pchar := `([A-Za-z0-9._~!$&'()*+,;=:@-]|` + pct + other + `)`
	user := `([A-Za-z0-9._~!$&'()*+,;=:-]|` + pct + other + `)*`
	host := `(\[(` + ipv6Pattern + `|v` + hexPattern + `+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\]|([A-Za-z0-9._~!$&'()*+,;=-]|` + pct + other + `)*)`
	authority := `//(` + user + `@)?` + host + `(:\d*)?(/` + pchar + `*)*`
	tail := `(\?(` + pchar + `|[/?])*)?(#(` + pchar + `|[/?])*)?`
	whole := `[A-Za-z][A-Za-z0-9+.-]*:(` + authority + `|/(` + pchar + `+(/` + pchar + `*)*)?|` + pchar + `+(/` + pchar + `*)*|)` + tail
	if !relative {
		return whole
	}
	noColon := `([A-Za-z0-9._~!$&'()*+,;=@-]|` + pct + other + `)`
	return `(` + whole + `|(` + authority + `|/(` + pchar + `+(/` + pchar + `*)*)?|` + noColon + `+(/` + pchar + `*)*|)` + tail + `)`
}

// formats are the expressions of the formats that a draft defines; "" for those that no automaton can tell.
var formats = map[string]string{
	"date": datePattern, "time": timePattern, "date-time": datePattern + `[Tt]` + timePattern,
	"duration": `P((\d+Y(\d+M(\d+D)?)?|\d+M(\d+D)?|\d+D)(` + durationTime + `)?|` + durationTime + `|\d+W)`,
	"email":    atomPattern + `(\.` + atomPattern + `)*@` + hostPattern, "hostname": hostPattern, "ipv4": ipv4Pattern, "ipv6": ipv6Pattern,
	"uuid": hexPattern + `{8}(-` + hexPattern + `{4}){3}-` + hexPattern + `{12}`,
	"uri":  uri("", false), "uri-reference": uri("", true), "iri": uri(`|[^\u0000-\u009f]`, false), "iri-reference": uri(`|[^\u0000-\u009f]`, true),
	"json-pointer": pointerPattern, "relative-json-pointer": `(0|[1-9]\d*)(#|` + pointerPattern + `)`,
	"uri-template": `([^\u0000- "'%<>\\^` + "`" + `{|}\u007f]|%` + hexPattern + `{2}|\{[+#./;?&=,!@|]?` + templateVars + `\})*`,
	"regex":        "", "idn-email": "", "idn-hostname": "",
}

const (
	templateName = `([A-Za-z0-9_]|%[0-9A-Fa-f]{2})(\.?([A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*`
	templateVar  = templateName + `(:[1-9]\d{0,3}|\*)?`
	templateVars = templateVar + `(,` + templateVar + `)*`
)

var formatsMade sync.Map // name → *formatMade

type formatMade struct {
	once sync.Once
	dfa  *automaton.DFA
	err  error
}

// format is the automaton of a format; nil for one that no draft defines.
func format(name string) (*automaton.DFA, error) {
	expr, ok := formats[name]
	switch {
	case !ok:
		return nil, nil
	case expr == "":
		return nil, fmt.Errorf("%q: %w", name, grammar.ErrUnsupported)
	}
	v, _ := formatsMade.LoadOrStore(name, &formatMade{})
	made := v.(*formatMade)
	made.once.Do(func() {
		made.dfa, made.err = pattern("^(" + expr + ")$")
		if made.err == nil && name == "hostname" {
			var t texts
			if t, made.err = (texts{made.dfa, 1, 253}).whole(); made.err == nil {
				made.dfa = t.dfa
			}
		}
	})
	return made.dfa, made.err
}
