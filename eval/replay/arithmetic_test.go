package replay

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"terrace/engine/shelf"
	"terrace/internal/golden"
	"terrace/policy"
)

// qualities are of one context: measured on its profile's questions, and on those of the trace, which the profile has not seen.
type qualities struct{ Profiled, Asked map[string]map[string]float64 }

// loads is what a placement comes to by arithmetic, on all requests but the first to each context.
type loads struct {
	Load, Quality, Host float64 // seconds of reading KV, mean quality, share found in host memory
	Computed            float64 // share of requests that compute their context again
}

// shelved is a trace in front of tiers of which only sizes and rates are real.
type shelved struct {
	trace  []Arrival
	tokens map[string]int
	of     map[string]qualities
	in     policy.Instance
}

const (
	slotTokens, slotBytes = 64, 1482752 // of SmolLM2-135M's KV in f16
	computedTokensPerS    = 1000
)

func (s *shelved) size(tokens int, keep float64) float64 {
	return float64((int(keep*float64(tokens))+slotTokens-1)/slotTokens) * slotBytes
}

func (s *shelved) options(id string) (out []policy.Option) {
	for _, m := range s.in.Methods {
		for _, k := range s.in.Keeps {
			out = append(out, policy.Option{Config: policy.Config{Method: m, Keep: k}, Quality: s.of[id].Profiled[m][shelf.KeepText(k)], Bytes: s.size(s.tokens[id], k)})
		}
	}
	return out
}

// run has every request arrive when the last is done and all is put away.
func (s *shelved) run(t *testing.T, text string) (out loads) {
	t.Helper()
	p, err := policy.ParsePlacement(text)
	if err != nil {
		t.Fatal(err)
	}
	p.PerByte = true // as the shelf has it
	in := s.in
	in.Alpha = max(0, p.Alpha) // below 0: none was given
	l, err := p.Layout(&in)
	if err != nil {
		t.Fatal(err)
	}
	n, seen := 0.0, map[string]bool{}
	for _, a := range s.trace {
		id, tokens := a.Context, s.tokens[a.Context]
		if !seen[id] {
			seen[id] = true
			opts := s.options(id)
			if p.Kind == policy.PlaceFixed {
				opts = []policy.Option{{Config: policy.Config{Method: p.Method, Keep: p.Keep}, Quality: 1, Bytes: s.size(tokens, p.Keep)}}
			}
			_, err = l.Arrive(policy.PlaceContext{ID: id, Bytes: s.size(tokens, 1), Options: opts})
		} else {
			w, _ := l.Where(id)
			n++
			switch {
			case in.Tiers[w.Tier].Computed:
				out.Computed++
				out.Load += float64(tokens) / computedTokensPerS
				out.Quality++
			case w.Config == policy.Uncompressed:
				out.Load += s.size(tokens, 1) / in.Tiers[w.Tier].BytesPerS
				out.Quality++
			default:
				out.Load += s.size(tokens, w.Keep) / in.Tiers[w.Tier].BytesPerS
				out.Quality += s.of[id].Asked[w.Method][shelf.KeepText(w.Keep)]
			}
			if w.Tier == 0 {
				out.Host++
			}
			_, err = l.Use(id)
		}
		if err != nil {
			t.Fatal(err)
		}
		l.Improve()
	}
	out.Load, out.Quality, out.Host, out.Computed = out.Load/n, out.Quality/n, out.Host/n, out.Computed/n
	return out
}

// TestMediumTraceByArithmetic: on 1,000 requests to 120 contexts each placement loads what docs/contexts.md says: KV to be read over the tiers' rates. The qualities are those that were measured on 12
// contexts of the small trace, taken in turn.
func TestMediumTraceByArithmetic(t *testing.T) {
	raw, err := os.ReadFile("testdata/qualities.json")
	if err != nil {
		t.Fatal(err)
	}
	var measured []qualities
	if err := json.Unmarshal(raw, &measured); err != nil {
		t.Fatal(err)
	}
	all, err := ReadContexts(golden.Shared(t, "data", "traces", "contexts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	trace, err := ReadTrace(golden.Shared(t, "data", "traces", "trace_medium.jsonl"), 0, all)
	if err != nil {
		t.Fatal(err)
	}
	s := &shelved{trace: trace, tokens: contextTokens(t), of: map[string]qualities{}}
	total, prompts := 0, 0
	for _, a := range trace {
		if _, ok := s.of[a.Context]; !ok {
			s.of[a.Context] = measured[len(s.of)%len(measured)]
			total += s.tokens[a.Context]
		}
		prompts += s.tokens[a.Context]
	}
	const tokenBytes, MiB = 23040, 1 << 20
	s.in = policy.Instance{Methods: []string{"keydiff", "knorm", "snapkv"}, Keeps: []float64{0.5, 0.25}, Tiers: []policy.PlaceTier{
		{Name: "host", CapacityBytes: float64(total) * tokenBytes / 9, BytesPerS: 800 * MiB},
		{Name: "ssd", CapacityBytes: float64(total)*tokenBytes*1.25 + 16*MiB, BytesPerS: 80 * MiB},
		{Name: "computed", CapacityBytes: 1e18, BytesPerS: shelf.ComputedBytesPerS, Computed: true}}}
	const configs = ",methods=keydiff/knorm/snapkv,keeps=0.5/0.25"
	out := map[string]loads{}
	t.Logf("%d requests to %d contexts, %d tokens; computing all of %d tokens takes %.0f ms a request", len(trace), len(s.of), total, prompts, float64(prompts)/float64(len(trace))/computedTokensPerS*1000)
	const fixed, fast, near = "fixed:method=keydiff,keep=0.5", "evicpress:alpha=0.2" + configs, "evicpress:alpha=3.2" + configs
	const fading = "evicpress:alpha=0.2,recency=100" + configs
	placements := []string{"lru", fixed, fast, near, fading}
	if testing.Verbose() {
		placements = append(placements, "fixed:method=snapkv,keep=0.5", "evicpress:alpha=0.1"+configs, "evicpress:alpha=0.4"+configs, "evicpress:alpha=0.8"+configs, "evicpress:alpha=1.6"+configs)
	}
	for _, text := range placements {
		r := s.run(t, text)
		out[text] = r
		t.Logf("%-72s load %4.0f ms, quality %.3f, host %2.0f %%, computed %.0f %%", text, 1000*r.Load, r.Quality, 100*r.Host, 100*r.Computed)
	}
	// The page's figures (docs/contexts.md), to half a millisecond, quality and share of the last digit: load s, quality, host, computed.
	for text, want := range map[string]loads{"lru": {0.325, 1, 0.21, 0}, fixed: {0.130, 0.493, 0.42, 0}, fast: {0.080, 0.660, 0.41, 0}, near: {0.288, 0.984, 0.23, 0}, fading: {0.065, 0.667, 0.56, 0}} {
		if got := out[text]; math.Abs(got.Load-want.Load) > 0.0005 || math.Abs(got.Quality-want.Quality) > 0.0005 || math.Abs(got.Host-want.Host) > 0.005 || got.Computed != want.Computed {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// contextTokens are the contexts' lengths as the data say them.
func contextTokens(t *testing.T) map[string]int {
	t.Helper()
	type line struct {
		ID     string
		Tokens int
	}
	lines, err := readLines(golden.Shared(t, "data", "traces", "contexts.jsonl"), func(line) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, l := range lines {
		out[l.ID] = l.Tokens
	}
	return out
}
