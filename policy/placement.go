package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"terrace/internal/nearest"
)

// PlacementKind names how contexts are placed on the tiers of a store.
type PlacementKind string

const (
	PlaceNone      PlacementKind = "none"      // nothing is stored: every context is computed
	PlaceLRU       PlacementKind = "lru"       // whole contexts, the one used longest ago goes a tier down
	PlaceFixed     PlacementKind = "fixed"     // all compressed alike, then lru
	PlaceImpress   PlacementKind = "impress"   // whole contexts, the least asked one goes a tier down; important tokens are loaded
	PlaceEvicPress PlacementKind = "evicpress" // by utility, see evicpress.go
)

var placementKinds = []string{string(PlaceEvicPress), string(PlaceFixed), string(PlaceImpress), string(PlaceLRU), string(PlaceNone)}

// Placement is a checked `--placement`.
type Placement struct {
	Kind PlacementKind
	// Alpha is what a whole quality point is worth, in seconds (evicpress); negative: not given.
	Alpha float64
	// Methods and Keeps limit the configurations of evicpress; empty: all that the instance has.
	Methods []string
	Keeps   []float64
	// PerByte ranks evicpress's operations by utility lost a byte freed, not by utility lost; PerByteSet: the text says which.
	PerByte, PerByteSet bool
	// Reprofile is how far the quality of an answer may fall below the profiled one before the context is profiled again
	// (evicpress, where there is idle capacity); 0 = never.
	Reprofile float64
	// Recency is after how many accesses, of whichever contexts, one counts half (evicpress); 0 = it counts for ever, as in the paper.
	Recency float64
	// Method and Keep are the configuration of fixed; Keep is the share loaded of impress.
	Method string
	Keep   float64
	text   string
}

// String is the text that was parsed.
func (p Placement) String() string { return p.text }

// ParsePlacement reads `evicpress:alpha=A,methods=keydiff/knorm,keeps=0.5/0.25,per_byte=false,reprofile=0,recency=N`, `lru`, `fixed:method=M,keep=K`,
// `impress:keep=K` or `none`. Errors wrap [ErrUnknown] or [ErrParam].
func ParsePlacement(text string) (Placement, error) {
	name, rest, _ := strings.Cut(text, ":")
	p := Placement{Kind: PlacementKind(name), Alpha: -1, text: text}
	if !slices.Contains(placementKinds, name) {
		return p, fmt.Errorf("policy: placement %q%s: known are %s: %w", name, nearest.Hint(name, placementKinds), strings.Join(placementKinds, ", "), ErrUnknown)
	}
	items, err := splitItems(name, rest)
	if err != nil {
		return p, err
	}
	seen := map[string]bool{}
	for _, it := range items {
		if seen[it.key] {
			return p, fmt.Errorf("policy: placement %s: %s was given twice: %w", name, it.key, ErrParam)
		}
		seen[it.key] = true
		if err := p.set(it); err != nil {
			return p, err
		}
	}
	if p.Kind == PlaceFixed && (p.Method == "" || p.Keep == 0) {
		return p, fmt.Errorf("policy: placement %s: want method=M,keep=K, as in fixed:method=keydiff,keep=0.5: %w", name, ErrParam)
	}
	if p.Kind == PlaceImpress && p.Keep == 0 {
		p.Keep = 0.25 // IMPRESS's usual retention (algorithms.md of the papers, 5.12)
	}
	return p, nil
}

// parameters of each kind.
var placementParams = map[PlacementKind][]string{
	PlaceEvicPress: {"alpha", "methods", "keeps", "per_byte", "reprofile", "recency"}, PlaceFixed: {"method", "keep"}, PlaceImpress: {"keep"},
}

func (p *Placement) set(it item) (err error) {
	known := placementParams[p.Kind]
	if len(known) == 0 {
		return fmt.Errorf("policy: placement %s: unknown parameter %q: it has no parameters: %w", p.Kind, it.key, ErrParam)
	}
	if !slices.Contains(known, it.key) {
		return fmt.Errorf("policy: placement %s: unknown parameter %q%s: known are %s: %w", p.Kind, it.key, nearest.Hint(it.key, known), strings.Join(known, ", "), ErrParam)
	}
	bad := func(want string) error {
		return fmt.Errorf("policy: placement %s: %s=%s: want %s: %w", p.Kind, it.key, it.value, want, ErrParam)
	}
	switch it.key {
	case "alpha":
		p.Alpha, err = strconv.ParseFloat(it.value, 64)
		if err != nil || !(p.Alpha >= 0 && p.Alpha <= math.MaxFloat32) {
			return bad("seconds a point of quality, 0 or more")
		}
	case "methods":
		for m := range strings.SplitSeq(it.value, "/") {
			if !compresses(m) || slices.Contains(p.Methods, m) {
				return bad("different policies that act after the prompt, as in keydiff/knorm/snapkv")
			}
			p.Methods = append(p.Methods, m)
		}
	case "keeps":
		for text := range strings.SplitSeq(it.value, "/") {
			k, ok := parseKeep(text)
			if !ok || slices.Contains(p.Keeps, k) {
				return bad("different shares above 0 and up to 1, as in 0.5/0.25")
			}
			p.Keeps = append(p.Keeps, k)
		}
	case "method":
		if p.Method = it.value; !compresses(p.Method) {
			return bad("a policy that acts after the prompt, such as keydiff")
		}
	case "keep":
		var ok bool
		if p.Keep, ok = parseKeep(it.value); !ok {
			return bad("a share above 0 and up to 1")
		}
	case "reprofile":
		p.Reprofile, err = strconv.ParseFloat(it.value, 64)
		if err != nil || !(p.Reprofile >= 0 && p.Reprofile <= 2) {
			return bad("how far quality may fall, from 0 (never) to 2")
		}
	case "recency":
		p.Recency, err = strconv.ParseFloat(it.value, 64)
		if err != nil || !(p.Recency >= 1 && p.Recency <= 1e9) {
			return bad("after how many accesses one counts half, from 1")
		}
	case "per_byte":
		p.PerByteSet = true
		if p.PerByte, err = strconv.ParseBool(it.value); err != nil {
			return bad("true or false")
		}
	}
	return nil
}

// compresses reports whether a context can be compressed by the method: it is registered, decides after the prompt, and takes a budget.
func compresses(method string) bool {
	e := registry[plain(method)]
	return e != nil && e.info.Name == method && e.info.Phase == PhasePrompt && slices.ContainsFunc(e.info.Params, func(p Param) bool { return p.Name == "budget" })
}

func parseKeep(text string) (float64, bool) {
	digits, percent := strings.CutSuffix(text, "%")
	k, err := strconv.ParseFloat(digits, 64)
	if percent {
		k /= 100
	}
	return k, err == nil && k > 0 && k <= 1
}

// PlaceTier is one tier of a store, as a placement sees it.
type PlaceTier struct {
	Name          string
	CapacityBytes float64 // +Inf: no limit
	BytesPerS     float64 // of reading, above 0
	// Computed is no tier of a store: what lies there is computed when it is asked for, at BytesPerS, and is never compressed.
	Computed bool
}

// Config is how a context is compressed: a method and the share of its KV that is kept.
type Config struct {
	Method string
	Keep   float64
}

// Uncompressed is the configuration of a context as it was computed; its quality is 1.
var Uncompressed = Config{Method: "none", Keep: 1}

// Option is a configuration with the quality of answers under it, from 0 to 1 (a cosine may be below 0).
type Option struct {
	Config
	Quality float64
	Bytes   float64 // that it takes on a tier; 0 = Keep times those of the context
}

// PlaceContext is one context to place.
type PlaceContext struct {
	ID      string
	Bytes   float64  // of its KV, uncompressed
	Freq    float64  // accesses so far
	Options []Option // beside [Uncompressed], which is always possible
}

// Instance is what [Placement.Place] places: tiers, fastest first, and contexts in order of arrival.
type Instance struct {
	Tiers    []PlaceTier
	Alpha    float64
	Methods  []string
	Keeps    []float64
	Contexts []PlaceContext
}

// Placed says where a context lies, and how.
type Placed struct {
	ID   string
	Tier int
	Config
}

// Step is one operation of a placement on one context: a smaller keep in place, or a lower tier.
type Step struct {
	ID       string
	From, To int // tiers; equal: compressed in place
	Config
	Delta float64 // the utility lost by it, in seconds; it may be negative
}

// Place puts the contexts of an instance on its tiers, one after another. Errors wrap [ErrInstance], [ErrParam] or [ErrNoRoom].
func (p Placement) Place(in *Instance) (l *Layout, steps []Step, err error) {
	if l, err = p.Layout(in); err != nil {
		return nil, nil, err
	}
	for _, c := range in.Contexts {
		if p.Kind == PlaceNone {
			continue
		}
		done, err := l.Arrive(c)
		if err != nil {
			return nil, nil, err
		}
		steps = append(steps, done...)
	}
	return l, steps, nil
}
