package shelf

import (
	"os"
	"slices"
	"strings"
	"testing"

	"terrace/engine"
	"terrace/kvmanager/contexts"
	"terrace/model"
	"terrace/policy"
)

// served is a keeper whose prompts are read as a server reads them.
type served struct {
	*Keeper
	t     *testing.T
	store *contexts.Store
}

func keeper(t *testing.T, placement, index string, specs ...contexts.Spec) *served {
	t.Helper()
	r, store := reader(t, specs...)
	return on(t, r, store, placement, index)
}

func on(t *testing.T, r *Reader, store *contexts.Store, placement, index string) *served {
	t.Helper()
	p, err := policy.ParsePlacement(placement)
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKeeper(KeeperOptions{Reader: r, Store: store, Placement: p, Index: index, Notice: func(line string) { t.Error(line) }})
	if err != nil {
		t.Fatal(err)
	}
	return &served{k, t, store}
}

// ask reads a prompt and answers it with the likeliest tokens.
func (s *served) ask(ids []int) (answer []int, reused engine.Reused) {
	s.t.Helper()
	session, err := s.r.Engine.NewSession(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer session.Close()
	p := s.Lookup(s.t.Context(), ids, nil, "")
	if _, err := p.Resume(s.t.Context(), session); err != nil {
		s.t.Fatal(err)
	}
	if err := session.Prefill(s.t.Context(), ids[session.Tokens():], engine.PrefillHooks{}); err != nil {
		s.t.Fatal(err)
	}
	p.Read(session)
	for range 4 {
		id, err := session.Choose(model.NewSampler(model.SamplerOptions{}))
		if err == nil {
			err = session.Decode(id)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		answer = append(answer, id)
	}
	return answer, p.Reused()
}

// rest works until nothing is left to do.
func (s *served) rest() {
	s.t.Helper()
	for n := 0; s.Work(s.t.Context()); n++ {
		if n > 10000 {
			s.t.Fatal("there is no end of work")
		}
	}
	s.holds()
}

// holds checks that no tier is over its capacity, and that what is kept is what lies there.
func (s *served) holds() {
	s.t.Helper()
	for i, tier := range s.store.Tiers() {
		now, peak := s.store.On(i).Held()
		if peak > tier.CapacityBytes {
			s.t.Errorf("%s held %d bytes of %d", tier.Kind, peak, tier.CapacityBytes)
		}
		distinct := int64(0)
		held, err := s.store.On(i).Sizes(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		for key, n := range held {
			if distinct += n; s.shelf.count[place{i, key}] == 0 {
				s.t.Errorf("a record on %s belongs to no context", tier.Kind)
			}
		}
		if tier.Kind == "host" && distinct != now {
			s.t.Errorf("%s: %d bytes of records, %d held", tier.Kind, distinct, now)
		}
	}
}

// lengths are how many blocks the contexts have, in order.
func (s *served) lengths() (out []int) {
	for _, c := range s.kept {
		out = append(out, len(c.keys))
	}
	slices.Sort(out)
	return out
}

const wide = 64 << 20

// TestContextsOfPrompts: what is a context by the prompts that came.
func TestContextsOfPrompts(t *testing.T) {
	document, other, third := []int(nil), []int(nil), []int(nil)
	first := func(ids []int, n int) []int { return ids[:n:n] }
	for _, c := range []struct {
		name    string
		prompts func() [][]int
		want    []int // blocks of contexts
	}{
		{"one prompt", func() [][]int { return [][]int{first(document, 150)} }, []int{2}},
		{"too short", func() [][]int { return [][]int{first(document, 64)} }, nil},
		{"the same again", func() [][]int { return [][]int{first(document, 193), first(document, 193)} }, []int{3}},
		{"two that part", func() [][]int {
			return [][]int{slices.Concat(first(document, 140), first(other, 80)), slices.Concat(first(document, 140), first(third, 80))}
		}, []int{2}},
		{"three that part", func() [][]int {
			return [][]int{slices.Concat(first(document, 140), first(other, 80)), slices.Concat(first(document, 140), first(third, 80)), slices.Concat(first(document, 140), first(other[80:], 80))}
		}, []int{2}},
		{"a conversation", func() [][]int { return [][]int{first(document, 100), first(document, 200), first(document, 300)} }, []int{4}},
		{"two conversations behind one beginning", func() [][]int {
			a, b := slices.Concat(first(document, 70), first(other, 200)), slices.Concat(first(document, 70), first(third, 200))
			return [][]int{first(a, 140), first(b, 140), first(a, 200), first(b, 200), first(a, 270)}
		}, []int{1, 3, 4}},
		{"a beginning alone", func() [][]int { return [][]int{first(document, 300), first(document, 150)} }, []int{2}},
		{"strangers", func() [][]int { return [][]int{first(document, 100), first(other, 150)} }, []int{1, 2}},
	} {
		s := keeper(t, "evicpress", "", contexts.Spec{Kind: "host", CapacityBytes: wide})
		document, other, third = text(t, s.r, 160, 1), text(t, s.r, 160, 2), text(t, s.r, 160, 3)
		for _, p := range c.prompts() {
			s.ask(p)
		}
		if got := s.lengths(); !slices.Equal(got, c.want) {
			t.Errorf("%s: contexts of %v blocks, want %v", c.name, got, c.want)
		}
	}
}

// TestKeeper: while nobody asks, contexts are measured, compressed and placed; tiers are not over their capacities; answers from whole contexts are
// those without a store, those from compressed ones say so, and what was left of them is what the layout says.
func TestKeeper(t *testing.T) {
	one := keeper(t, "evicpress", "", contexts.Spec{Kind: "host", CapacityBytes: wide})
	one.ask(text(t, one.r, 100, 1))
	blockBytes, _ := one.store.On(0).Held()
	blockBytes /= int64(one.lengths()[0])
	s := keeper(t, "evicpress:alpha=0.00001,methods=knorm/keydiff,keeps=0.5", "", contexts.Spec{Kind: "host", CapacityBytes: 7 * blockBytes}, contexts.Spec{Kind: "ssd", Place: "d", CapacityBytes: wide})
	var plain, prompts [][]int
	for i := range uint64(4) {
		document := text(t, s.r, 90, 10+i)
		for q := range uint64(3) {
			prompts = append(prompts, slices.Concat(document, text(t, s.r, 4, 100+q)))
		}
	}
	for _, p := range prompts {
		alone, err := s.r.Engine.NewSession(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := alone.Prefill(t.Context(), p, engine.PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		var answer []int
		for range 4 {
			id, _ := alone.Choose(model.NewSampler(model.SamplerOptions{}))
			_ = alone.Decode(id)
			answer = append(answer, id)
		}
		alone.Close()
		plain = append(plain, answer)
	}
	whole, compressed := 0, 0
	for round := range 2 {
		for i, p := range prompts {
			answer, reused := s.ask(p)
			if reused.Method == "" && !slices.Equal(answer, plain[i]) {
				t.Errorf("prompt %d, %v: %v, without a store %v", i, reused, answer, plain[i])
			}
			switch {
			case reused.Method != "":
				compressed++
			case reused.Tokens > 0:
				whole++
			}
			if round == 1 && reused.Tokens == 0 {
				t.Errorf("prompt %d found nothing", i)
			}
			s.holds()
		}
		s.rest()
	}
	f := s.Figures()
	if f.Profiled < 4 || f.ProfileS <= 0 || whole == 0 || compressed == 0 {
		t.Errorf("%d hits of whole contexts, %d of compressed ones, %+v", whole, compressed, f)
	}
	for _, c := range s.kept {
		config, stored := s.shelf.Where(c.ID)
		if at, _ := s.shelf.layout.Where(c.ID); !stored || at.Config != config {
			t.Errorf("a context lies as %v (%v), the layout says %v", config, stored, at)
		}
	}
}

// TestKeeperAgain: after a restart contexts on ssd are found as they were kept; an index that is damaged, or names records that are gone, costs
// them alone.
func TestKeeperAgain(t *testing.T) {
	dir := t.TempDir()
	specs := []contexts.Spec{{Kind: "ssd", Place: "d", CapacityBytes: wide}}
	const placement = "evicpress:alpha=0,methods=knorm,keeps=0.5"
	s := keeper(t, placement, dir, specs...)
	a, b := text(t, s.r, 100, 1), text(t, s.r, 100, 2)
	question := text(t, s.r, 5, 3)
	for range 2 {
		s.ask(slices.Concat(a, question))
		s.ask(b)
		s.rest()
	}
	want, reused := s.ask(slices.Concat(a, question))
	if reused.Method != "knorm" || reused.Keep != 0.5 || reused.Tokens == 0 {
		t.Fatalf("before: %+v", reused)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := on(t, s.r, s.store, placement, dir)
	if got, now := again.ask(slices.Concat(a, question)); now != reused || !slices.Equal(got, want) {
		t.Errorf("after a restart: %v of %+v, before %v of %+v", got, now, want, reused)
	}
	if again.Figures().Profiled != s.Figures().Profiled {
		t.Errorf("figures %+v, before %+v", again.Figures(), s.Figures())
	}
	again.rest()
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	var first contexts.Key
	held, err := s.store.On(0).Sizes(t.Context())
	if err != nil || len(held) == 0 {
		t.Fatal(len(held), err)
	}
	for _, it := range again.shelf.items {
		first = it.keys[0]
	}
	if err := s.store.On(0).Drop(t.Context(), []contexts.Key{first}); err != nil {
		t.Fatal(err)
	}
	less := on(t, s.r, s.store, placement, dir)
	if len(less.kept) != len(again.kept)-1 {
		t.Errorf("%d contexts known with a record gone, %d before", len(less.kept), len(again.kept))
	}
	if err := os.WriteFile(less.file, []byte(`{"version": 1`), 0o600); err != nil {
		t.Fatal(err)
	}
	p, _ := policy.ParsePlacement(placement)
	said := ""
	damaged, err := NewKeeper(KeeperOptions{Reader: s.r, Store: s.store, Placement: p, Index: dir, Notice: func(line string) { said = line }})
	if err != nil || len(damaged.kept) != 0 || !strings.Contains(said, "placement-") {
		t.Errorf("%v, %d contexts, %q", err, len(damaged.kept), said)
	}
}

// TestStrangers: records that the index does not name make room.
func TestStrangers(t *testing.T) {
	s := keeper(t, "evicpress", "", contexts.Spec{Kind: "ssd", Place: "d", CapacityBytes: 1 << 20})
	for i := range uint64(3) {
		s.ask(text(t, s.r, 100, i))
	}
	s.rest()
	before, _ := s.store.On(0).Sizes(t.Context())
	again := on(t, s.r, s.store, "evicpress", t.TempDir())
	for i := range uint64(6) {
		again.ask(text(t, s.r, 150, 50+i))
		for again.Between(t.Context()) {
		}
	}
	again.rest()
	if len(before) == 0 || len(again.lengths()) != 6 {
		t.Errorf("%d records before, %v", len(before), again.lengths())
	}
}

// turning is a Quality that is 1 until it turns, and 0 then.
type turning struct{ turned *bool }

func (turning) Name() string { return "turning" }

func (q turning) Scores(pred, _ []string) ([]float64, error) {
	out := make([]float64, len(pred))
	for i := range out {
		if !*q.turned {
			out[i] = 1
		}
	}
	return out, nil
}

// TestKeeperReprofiles: where the answers of a compressed context have become worse than its profile says, it is measured again, and kept whole where no
// form is worth it; without reprofile nobody looks.
func TestKeeperReprofiles(t *testing.T) {
	for placement, again := range map[string]int{"evicpress:alpha=1,methods=knorm,keeps=0.5,reprofile=0.3": 1, "evicpress:alpha=1,methods=knorm,keeps=0.5": 0} {
		s := keeper(t, placement, "", contexts.Spec{Kind: "host", CapacityBytes: wide})
		turned := false
		s.r.Quality = turning{&turned}
		document := text(t, s.r, 90, 1)
		for q := range uint64(2) {
			s.ask(slices.Concat(document, text(t, s.r, 4, 100+q)))
			s.rest()
		}
		if _, reused := s.ask(slices.Concat(document, text(t, s.r, 4, 102))); reused.Method != "knorm" {
			t.Fatalf("%s: before %+v", placement, reused)
		}
		s.rest()
		turned = true
		s.ask(slices.Concat(document, text(t, s.r, 4, 103)))
		s.rest()
		_, reused := s.ask(slices.Concat(document, text(t, s.r, 4, 104)))
		if f := s.Figures(); f.Reprofiled != again || (reused.Method == "") != (again > 0) || reused.Tokens == 0 {
			t.Errorf("%s: profiled again %d times, then %+v", placement, f.Reprofiled, reused)
		}
	}
}
