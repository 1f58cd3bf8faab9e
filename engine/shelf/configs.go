package shelf

import (
	"strconv"
	"sync"

	"terrace/policy"
)

// Configs are the configurations that a placement chooses from. Those of evicpress are by default three methods and three shares.
func Configs(p policy.Placement) (out []policy.Config) {
	switch p.Kind {
	case policy.PlaceFixed:
		return []policy.Config{{Method: p.Method, Keep: p.Keep}}
	case policy.PlaceImpress:
		return []policy.Config{important(p)}
	case policy.PlaceLRU, policy.PlaceNone:
		return nil
	}
	methods, keeps := p.Methods, p.Keeps
	if len(methods) == 0 {
		methods = []string{"keydiff", "knorm", "snapkv"}
	}
	if len(keeps) == 0 {
		keeps = []float64{0.75, 0.5, 0.25}
	}
	for _, m := range methods {
		for _, k := range keeps {
			out = append(out, policy.Config{Method: m, Keep: k})
		}
	}
	return out
}

// important is the part that impress loads: what snapkv, which scores by attention as it does, keeps.
func important(p policy.Placement) policy.Config {
	return policy.Config{Method: "snapkv", Keep: p.Keep}
}

// spec is the policy that compresses a context to a configuration; nil = not at all.
func spec(c policy.Config) (*policy.Spec, error) {
	if c == policy.Uncompressed {
		return nil, nil
	}
	return policy.Parse(c.Method + ":ratio=" + strconv.FormatFloat(1-c.Keep, 'g', 12, 64))
}

// keepsAll is the policy under which a replay's context is kept whole: as a compressed context from which nothing was dropped, to its
// last token. Blocks of a plain prefix would leave up to 63 tokens of each context to be computed with every question.
var keepsAll = sync.OnceValues(func() (*policy.Spec, error) { return policy.Parse("knorm:ratio=0") })

// KeptAs is the policy under which a compressed context, or one that is whole to its last token, is kept.
func KeptAs(c policy.Config) (*policy.Spec, error) {
	if c == policy.Uncompressed {
		return keepsAll()
	}
	return spec(c)
}

// keptTokens is how many of n tokens a configuration keeps in each KV head.
func keptTokens(c policy.Config, n int) int { return max(1, int(c.Keep*float64(n)+1e-9)) }

// KeepText is a share kept as a key of JSON.
func KeepText(keep float64) string { return strconv.FormatFloat(keep, 'g', -1, 64) }
