package policy

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"terrace/internal/golden"
)

// TestPlacement: an instance as `store place` reads it, then placements of it; `use ID` counts an access.
func TestPlacement(t *testing.T) {
	var in *Instance
	var l *Layout
	datadriven.RunTest(t, "testdata/placement", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		var err error
		var steps []Step
		switch d.Cmd {
		case "instance":
			if in, err = ReadInstance([]byte(d.Input)); err != nil {
				return "error: " + err.Error()
			}
			return fmt.Sprintf("%d tiers, %d contexts", len(in.Tiers), len(in.Contexts))
		case "parse":
			for line := range strings.SplitSeq(d.Input, "\n") {
				if p, err := ParsePlacement(line); err != nil {
					fmt.Fprintln(&b, "error:", err)
				} else {
					fmt.Fprintf(&b, "%s: alpha %g methods %v keeps %v per byte %v method %q keep %g\n", p.Kind, p.Alpha, p.Methods, p.Keeps, p.PerByte, p.Method, p.Keep)
				}
			}
			return b.String()
		case "place":
			p, perr := ParsePlacement(d.Input)
			if perr != nil {
				t.Fatal(perr)
			}
			l, steps, err = p.Place(in)
		case "use":
			steps, err = l.Use(d.Input)
		case "remove":
			l.Remove(d.Input)
		}
		if err != nil {
			return "error: " + err.Error()
		}
		for _, s := range steps {
			fmt.Fprintf(&b, "%s %s %s>%s %s %g, loses %.4g\n", s.Op(), s.ID, in.Tiers[s.From].Name, in.Tiers[s.To].Name, s.Method, s.Keep, s.Delta)
		}
		for _, p := range l.Placed() {
			fmt.Fprintf(&b, "%s: %s %s %g\n", p.ID, in.Tiers[p.Tier].Name, p.Method, p.Keep)
		}
		fmt.Fprintf(&b, "utility %.4g\n", l.Utility())
		return b.String()
	})
}

// TestPlacementGolden holds all three placements against the reference's cases.
func TestPlacementGolden(t *testing.T) {
	f, err := os.Open(golden.Shared(t, "data", "golden", "placement", "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var c struct {
			Name     string
			Instance json.RawMessage
			Expect   struct {
				Utility float64
				Want    string
				AtLeast float64 `json:"at_least"`
				Optimum *float64
				LRU     *struct{ Placed map[string]string }
				Fixed   *struct {
					Placed map[string]string
					Method string
					Keep   float64
				}
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		in, err := ReadInstance(c.Instance)
		if err != nil {
			t.Fatal(err)
		}
		e := c.Expect
		got := placeAll(t, in, "evicpress").Utility()
		slack := 1e-9 * max(1, math.Abs(e.Utility))
		if e.Want == "equal" && math.Abs(got-e.Utility) > slack || got < e.AtLeast-slack || e.Optimum != nil && got > *e.Optimum+slack {
			t.Errorf("%s: utility %g, reference %g (%s, at least %g)", c.Name, got, e.Utility, e.Want, e.AtLeast)
		}
		where := func(l *Layout, want map[string]string) {
			for _, p := range l.Placed() {
				if in.Tiers[p.Tier].Name != want[p.ID] {
					t.Errorf("%s: %s: %s on %s, want %s", c.Name, l.placement, p.ID, in.Tiers[p.Tier].Name, want[p.ID])
				}
			}
		}
		if e.LRU != nil {
			where(placeAll(t, in, "lru"), e.LRU.Placed)
		}
		if e.Fixed != nil {
			where(placeAll(t, in, fmt.Sprintf("fixed:method=%s,keep=%g", e.Fixed.Method, e.Fixed.Keep)), e.Fixed.Placed)
		}
	}
}

func placeAll(t *testing.T, in *Instance, text string) *Layout {
	t.Helper()
	p, err := ParsePlacement(text)
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := p.Place(in)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return l
}

// randomInstance has up to four tiers, the last without a limit, and sizes that tie often.
func randomInstance(r *rand.Rand, contexts int) *Instance {
	in := &Instance{Alpha: []float64{0, 0.2, 1, 5}[r.IntN(4)], Methods: []string{"keydiff", "knorm"}, Keeps: []float64{0.5, 0.25, 0.1}}
	speed := 1000.0
	for i := range 1 + r.IntN(4) {
		in.Tiers = append(in.Tiers, PlaceTier{Name: fmt.Sprint("tier", i), CapacityBytes: float64(r.IntN(400)), BytesPerS: speed})
		speed /= float64(1 + r.IntN(10))
	}
	in.Tiers[len(in.Tiers)-1].CapacityBytes = math.Inf(1)
	for i := range contexts {
		c := PlaceContext{ID: fmt.Sprint("c", i), Bytes: float64(r.IntN(30) * 10), Freq: float64(r.IntN(5))}
		for _, m := range in.Methods {
			for _, k := range in.Keeps {
				c.Options = append(c.Options, Option{Config: Config{m, k}, Quality: math.Round(r.Float64()*20) / 20})
			}
		}
		in.Contexts = append(in.Contexts, c)
	}
	return in
}

// TestLayoutLife drives random arrivals, uses and removals: no tier is ever over its capacity, steps lead from what was to
// what is, and the greedy's accounts equal a recount.
func TestLayoutLife(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		in := randomInstance(r, 12)
		p, _ := ParsePlacement([]string{"evicpress", "evicpress:per_byte=true,keeps=0.5", "lru", "fixed:method=knorm,keep=0.25", "impress"}[seed%5])
		l, err := p.Layout(in)
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]Placed{}
		for range 60 {
			c := in.Contexts[r.IntN(len(in.Contexts))]
			var steps []Step
			switch _, there := at[c.ID]; {
			case there && r.IntN(4) == 0:
				l.Remove(c.ID)
				delete(at, c.ID)
			case there:
				steps, err = l.Use(c.ID)
			default:
				steps, err = l.Arrive(c)
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, s := range steps {
				was, ok := at[s.ID]
				if s.To < s.From || s.From == s.To && ok && s.ID != c.ID && s.Keep >= was.Keep || ok && s.ID != c.ID && s.From != was.Tier {
					t.Fatalf("seed %d: step %+v from %+v", seed, s, was)
				}
				at[s.ID] = Placed{s.ID, s.To, s.Config}
			}
			if before := l.Utility(); r.IntN(3) == 0 {
				if better := l.Improve(); better != (l.Utility() > before+1e-10) || l.Utility() < before-1e-9 {
					t.Fatalf("seed %d: improved %v, utility from %g to %g", seed, better, before, l.Utility())
				}
			}
			used := make([]float64, len(in.Tiers))
			clear(at)
			for _, q := range l.Placed() {
				at[q.ID] = q
				i := slices.IndexFunc(in.Contexts, func(c PlaceContext) bool { return c.ID == q.ID })
				used[q.Tier] += q.Keep * in.Contexts[i].Bytes
			}
			for i, tier := range in.Tiers {
				if used[i] > tier.CapacityBytes*(1+1e-9) || math.Abs(used[i]-l.tiers[i].used) > 1e-6 {
					t.Fatalf("seed %d: %s holds %g of %g, accounted %g", seed, tier.Name, used[i], tier.CapacityBytes, l.tiers[i].used)
				}
			}
		}
	}
}

// exhaustive is the best utility of any placement, by trying all.
func exhaustive(l *Layout, in *Instance, i int, used []float64) float64 {
	if i == len(in.Contexts) {
		return 0
	}
	best := math.Inf(-1)
	c := in.Contexts[i]
	for tier := range in.Tiers {
		for _, o := range append([]Option{whole}, c.Options...) {
			if used[tier]+o.Keep*c.Bytes > in.Tiers[tier].CapacityBytes {
				continue
			}
			used[tier] += o.Keep * c.Bytes
			u := (l.alpha*o.Quality-o.Keep*c.Bytes/in.Tiers[tier].BytesPerS)*(c.Freq+1) + exhaustive(l, in, i+1, used)
			used[tier] -= o.Keep * c.Bytes
			best = max(best, u)
		}
	}
	return best
}

// TestGreedyIsNearTheOptimum: never above exhaustive search, and at least nine tenths of it on average.
func TestGreedyIsNearTheOptimum(t *testing.T) {
	var share, n float64
	for seed := range uint64(60) {
		in := randomInstance(rand.New(rand.NewPCG(seed, 3)), 3)
		in.Alpha = 1 + in.Alpha
		l := placeAll(t, in, "evicpress")
		got, want := l.Utility(), exhaustive(l, in, 0, make([]float64, len(in.Tiers)))
		if got > want+1e-9*max(1, math.Abs(want)) {
			t.Fatalf("seed %d: %g above the optimum %g", seed, got, want)
		}
		if want > 0 {
			share, n = share+got/want, n+1
		}
	}
	if share/n < 0.9 {
		t.Errorf("%.3f of the optimum on average, want 0.9", share/n)
	}
}

// TestImprove: layouts that are used and improved are never above the best placement for the accesses so far, 0.97 of it on average,
// and nearer to it than those that are only used.
func TestImprove(t *testing.T) {
	p, _ := ParsePlacement("evicpress")
	var used, improved, n float64
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 4))
		in := randomInstance(r, 4)
		in.Alpha = 1 + in.Alpha
		plain, better := placeAll(t, in, "evicpress"), placeAll(t, in, "evicpress")
		for range 12 {
			i := r.IntN(len(in.Contexts)) * r.IntN(2) // the first is asked most
			in.Contexts[i].Freq++
			for _, l := range []*Layout{plain, better} {
				if _, err := l.Use(in.Contexts[i].ID); err != nil {
					t.Fatal(err)
				}
			}
			better.Improve()
		}
		want, err := p.Layout(in)
		if err != nil {
			t.Fatal(err)
		}
		best := exhaustive(want, in, 0, make([]float64, len(in.Tiers)))
		if got := better.Utility(); got > best+1e-9*max(1, math.Abs(best)) {
			t.Fatalf("seed %d: %g above the optimum %g", seed, got, best)
		}
		if best > 0 {
			used, improved, n = used+plain.Utility()/best, improved+better.Utility()/best, n+1
		}
	}
	if improved/n < 0.97 || improved <= used {
		t.Errorf("%.4f of the optimum on average, want 0.97; %.4f without", improved/n, used/n)
	}
	t.Logf("%.4f of the optimum, %.4f without", improved/n, used/n)
}

// TestImproveDisplaces: two small contexts that are asked often come back, where a large one displaced them because each of the two
// loses less than it would.
func TestImproveDisplaces(t *testing.T) {
	half := func(q float64) []Option { return []Option{{Config: Config{"knorm", 0.5}, Quality: q}} }
	in := &Instance{Alpha: 1, Methods: []string{"knorm"}, Keeps: []float64{0.5}, Tiers: []PlaceTier{{Name: "host", CapacityBytes: 10, BytesPerS: 100}, {Name: "ssd", CapacityBytes: math.Inf(1), BytesPerS: 10}},
		Contexts: []PlaceContext{{ID: "small", Bytes: 3, Freq: 2, Options: half(0.9)}, {ID: "other", Bytes: 3, Freq: 2, Options: half(0.9)}, {ID: "large", Bytes: 9, Options: half(0.2)}}}
	l := placeAll(t, in, "evicpress")
	for _, id := range []string{"small", "other"} {
		if at, _ := l.Where(id); at.Tier != 1 {
			t.Fatalf("by the operation %s is on tier %d: the test shows nothing", id, at.Tier)
		}
	}
	if !l.Improve() {
		t.Error("nothing is better")
	}
	want := []Placed{{"small", 0, Uncompressed}, {"other", 0, Uncompressed}, {"large", 1, Uncompressed}}
	if got := l.Placed(); !slices.Equal(got, want) {
		t.Errorf("placed %v, want %v", got, want)
	}
	if l.Improve() {
		t.Error("the best layout was improved")
	}
}

// TestInstanceErrors: files that must be refused, by a sentinel and without a panic.
func TestInstanceErrors(t *testing.T) {
	f, err := os.Open(golden.Shared(t, "data", "golden", "placement", "bad.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dec := json.NewDecoder(f)
	for dec.More() {
		var c struct{ Text, Placement, What string }
		if err := dec.Decode(&c); err != nil {
			t.Fatal(err)
		}
		p, err := ParsePlacement(c.Placement)
		var in *Instance
		if err == nil {
			in, err = ReadInstance([]byte(c.Text))
		}
		if err == nil {
			_, _, err = p.Place(in)
		}
		if !errors.Is(err, ErrInstance) && !errors.Is(err, ErrParam) && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrNoRoom) {
			t.Errorf("%s: %v", c.What, err)
		}
	}
}

func FuzzReadInstance(f *testing.F) {
	f.Add([]byte(`{"tiers":[{"name":"host","capacity_bytes":10,"bytes_per_s":2}],"methods":["keydiff"],"keeps":[0.5],"alpha":1,"contexts":[{"id":"a","bytes":12,"freq":0,"quality":{"keydiff":{"0.5":0.9}}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if in, err := ReadInstance(data); err == nil {
			l, _, err := Placement{Kind: PlaceEvicPress, Alpha: -1}.Place(in)
			if err == nil && len(l.Placed()) != len(in.Contexts) {
				t.Error("a context is lost")
			}
		}
	})
}

// BenchmarkPlace: 10,000 contexts of 27 configurations on three tiers.
func BenchmarkPlace(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	in := randomInstance(r, 10000)
	in.Tiers = []PlaceTier{{Name: "host", CapacityBytes: 100000, BytesPerS: 1000}, {Name: "ssd", CapacityBytes: 1000000, BytesPerS: 100}, {Name: "remote", CapacityBytes: math.Inf(1), BytesPerS: 10}}
	p, _ := ParsePlacement("evicpress")
	for b.Loop() {
		if _, _, err := p.Place(in); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRecency: with a recency what was asked often long ago gives way to what is asked now; without, as in the paper, it does not. A newcomer that is
// never asked displaces neither.
func TestRecency(t *testing.T) {
	host := func(text string) string {
		p, err := ParsePlacement(text)
		if err != nil {
			t.Fatal(err)
		}
		l, err := p.Layout(&Instance{Tiers: []PlaceTier{{Name: "host", CapacityBytes: 10, BytesPerS: 10}, {Name: "ssd", CapacityBytes: 100, BytesPerS: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"old", "new"} {
			if _, err := l.Arrive(PlaceContext{ID: id, Bytes: 10}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 14 {
			id := "old"
			if i >= 10 {
				id = "new"
			}
			if _, err := l.Use(id); err != nil {
				t.Fatal(err)
			}
			l.Improve()
		}
		if _, err := l.Arrive(PlaceContext{ID: "newcomer", Bytes: 10}); err != nil {
			t.Fatal(err)
		}
		l.Improve()
		for _, c := range l.Placed() {
			if c.Tier == 0 {
				return c.ID
			}
		}
		return ""
	}
	for text, want := range map[string]string{"evicpress:alpha=1,per_byte=true": "old", "evicpress:alpha=1,per_byte=true,recency=100": "old", "evicpress:alpha=1,per_byte=true,recency=2": "new"} {
		if got := host(text); got != want {
			t.Errorf("%s: %q lies on host, want %q", text, got, want)
		}
	}
}
