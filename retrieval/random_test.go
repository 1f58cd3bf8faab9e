package retrieval

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"terrace/csdshim"
	"terrace/kvmanager"
)

// lockstep is scenarios that differ in where tokens lie alone, and go through the same operations.
type lockstep struct {
	policy string
	all    []*scenario
	rng    *rand.Rand
	made   int
	sizes  map[string]int // tokens of each sequence
}

// randomPlaces are the policies that are tried, with the setups that must not differ from host memory.
var randomPlaces = []struct {
	policy string
	tiers  []setup
	cuts   bool // tokens may be taken back, and the sequence forked
}{
	{"full", []setup{{blocks: 130}, {blocks: 400}}, true},
	{"snapkv:budget=80", []setup{{blocks: 70}}, false},
	{"h2o:budget=50", []setup{{blocks: 70}}, false},
	{"quest:budget=64", []setup{{blocks: 240}}, false},
	{"hillinfer:alpha=0.2,query=prev_step", []setup{{blocks: 260}, {blocks: 260, codes: csdshim.CodesInt8}}, false},
	{"hillinfer:alpha=0.3,pools=token,beta_mode=fixed,beta=0.2", []setup{{blocks: 260}, {blocks: 260, codes: csdshim.CodesInt8}}, false},
}

// TestRandomOperations: prompts, steps of some sequences together, steps that fail, forks, cuts and frees in any order read and compute the
// same wherever tokens lie, and leave all accounts in order after each.
func TestRandomOperations(t *testing.T) {
	seeds := uint64(1)
	if thorough() {
		seeds = 40
	}
	for _, place := range randomPlaces {
		for seed := range seeds {
			bubble(t, fmt.Sprint(place.policy, " ", seed), func(t *testing.T) {
				spec := parsed(t, place.policy)
				l := &lockstep{policy: place.policy, rng: rand.New(rand.NewPCG(seed, 3)), sizes: map[string]int{}}
				l.all = append(l.all, openScenario(t, spec, setup{}))
				for _, with := range place.tiers {
					l.all = append(l.all, openScenario(t, spec, with))
				}
				defer func() {
					for _, s := range l.all {
						s.close(t)
					}
				}()
				for op := range 40 {
					what := l.operation(t, place.cuts)
					for _, s := range l.all {
						s.check(t)
					}
					if t.Failed() {
						t.Fatalf("operation %d: %s", op, what)
					}
				}
			})
		}
	}
}

// operation does something at random; it returns what.
func (l *lockstep) operation(t *testing.T, cuts bool) string {
	names := l.all[0].names()
	if len(names) == 0 || len(names) < 3 && l.rng.IntN(6) == 0 {
		return l.begin(t)
	}
	name := names[l.rng.IntN(len(names))]
	switch n := l.rng.IntN(12); {
	case n < 6:
		return l.step(t, names)
	case n == 6:
		return l.failedStep(t, name)
	case n == 7 && l.sizes[name] < 300:
		return l.more(t, name)
	case n == 8 && cuts && len(names) < 4:
		return l.fork(t, name)
	case n == 9 && cuts:
		return l.cut(t, name)
	case n == 10 && l.rng.IntN(3) == 0:
		for _, s := range l.all {
			if err := s.texts[name].Free(); err != nil {
				t.Error(err)
			}
			delete(s.texts, name)
		}
		return "free " + name
	}
	for _, s := range l.all {
		s.wait()
	}
	return "wait"
}

// begin reads a prompt of a new sequence.
func (l *lockstep) begin(t *testing.T) string {
	l.made++
	name := fmt.Sprint("text ", l.made)
	for _, s := range l.all {
		x := s.text(t, name, parsed(t, l.policy))
		x.seed = uint64(l.made)
	}
	return l.more(t, name)
}

// more reads rows of a prompt.
func (l *lockstep) more(t *testing.T, name string) string {
	n, chunk := 70+l.rng.IntN(120), 32+16*l.rng.IntN(3)
	for _, s := range l.all {
		if err := s.prompt(s.texts[name], n, chunk); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	l.sizes[name] += n
	return fmt.Sprintf("prompt of %d for %s, %d at a time", n, name, chunk)
}

// step takes a step of some sequences together and compares.
func (l *lockstep) step(t *testing.T, names []string) string {
	var chosen []string
	for _, i := range l.rng.Perm(len(names))[:1+l.rng.IntN(len(names))] {
		chosen = append(chosen, names[i])
		l.sizes[names[i]]++
	}
	for _, s := range l.all {
		var texts []*scenarioText
		for _, name := range chosen {
			texts = append(texts, s.texts[name])
		}
		if err := s.step(texts...); err != nil {
			t.Errorf("step of %v: %v", chosen, err)
			return "step"
		}
	}
	for _, name := range chosen {
		for i, s := range l.all[1:] {
			if s.texts[name].outputs() != l.all[0].texts[name].outputs() {
				t.Errorf("%s differs on setup %d", name, i)
			}
		}
	}
	return fmt.Sprint("step of ", chosen)
}

// failedStep has a sequence fail in some layer, which is as if it had not been tried.
func (l *lockstep) failedStep(t *testing.T, name string) string {
	layer := l.rng.IntN(3)
	if l.policy == "h2o:budget=50" {
		layer = 0 // what it drops in a layer is gone
	}
	for _, s := range l.all {
		s.broken = func(at int, p *Pass) {
			if at == layer {
				p.Fail(0, errTest)
			}
		}
		if err := s.step(s.texts[name]); !errors.Is(err, errTest) {
			t.Errorf("%s: %v", name, err)
		}
		s.broken = nil
	}
	return fmt.Sprintf("%s fails in layer %d", name, layer)
}

// fork goes on with a copy.
func (l *lockstep) fork(t *testing.T, name string) string {
	l.made++
	to := fmt.Sprint("text ", l.made)
	for _, s := range l.all {
		x := s.texts[name]
		f, err := x.Fork(SequenceOptions{Policy: parsed(t, l.policy)})
		if err != nil {
			t.Error(err)
			return "fork"
		}
		s.texts[to] = &scenarioText{Sequence: f, seed: x.seed}
	}
	l.sizes[to] = l.sizes[name]
	return "fork " + name + " to " + to
}

// cut takes tokens back.
func (l *lockstep) cut(t *testing.T, name string) string {
	n := 1 + l.rng.IntN(l.sizes[name])
	for _, s := range l.all {
		if err := s.texts[name].Truncate(int32(n)); err != nil {
			t.Error(err)
		}
	}
	l.sizes[name] = n
	return fmt.Sprint("cut ", name, " to ", n)
}

// TestBudgetRefusesWhole: a prompt that does not fit is refused with the numbers, changes nothing, and fits once others are gone.
func TestBudgetRefusesWhole(t *testing.T) {
	for _, name := range []string{"full", "quest:budget=64", "hillinfer:alpha=0.2"} {
		bubble(t, name, func(t *testing.T) {
			spec := parsed(t, name)
			s := openScenario(t, spec, setup{blocks: 60})
			defer s.close(t)
			a, b := s.text(t, "a", spec), s.text(t, "b", spec)
			if err := s.prompt(a, 100, 64); err != nil {
				t.Fatal(err)
			}
			before := s.shared.o.KV.Stats().InUseBytes
			if err := s.prompt(b, 2000, 64); !errors.Is(err, kvmanager.ErrBudget) {
				t.Fatalf("a prompt larger than memory: %v", err)
			}
			s.check(t)
			if now := s.shared.o.KV.Stats().InUseBytes; now > before || b.Read() != 0 {
				t.Errorf("%d bytes in use, %d before; %d tokens read", now, before, b.Read())
			}
			if err := s.prompt(b, 100, 64); err != nil {
				t.Errorf("a prompt that fits: %v", err)
			}
		})
	}
}
