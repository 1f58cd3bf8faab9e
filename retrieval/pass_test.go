package retrieval

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"terrace/csdshim"
	"terrace/internal/clock"
	"terrace/internal/kernels"
	"terrace/offload"
)

var errTest = errors.New("a test's own error")

// bubble runs a test where nothing depends on the machine's speed.
func bubble(t *testing.T, name string, run func(t *testing.T)) {
	t.Helper()
	t.Run(strings.ReplaceAll(name, "/", " "), func(t *testing.T) { synctest.Test(t, run) })
}

// places are a policy on each kind of residency.
var places = []struct {
	name, policy string
	with         setup
}{
	{"resident", "quest:budget=64", setup{}},
	{"resident, dropping", "h2o:budget=60", setup{}},
	{"streamed", "full", setup{blocks: 90}},
	{"streamed, dropping", "h2o:budget=60", setup{blocks: 90}},
	{"cached pages", "quest:budget=64", setup{blocks: 200}},
	{"cached tokens", "hillinfer:alpha=0.2", setup{blocks: 200}},
	{"cached tokens, last query", "hillinfer:alpha=0.2,query=prev_step", setup{blocks: 200}},
	{"drive", "hillinfer:alpha=0.2", setup{blocks: 200, codes: csdshim.CodesInt8}},
	{"drive, whole tokens", "hillinfer:alpha=0.2,pools=token,beta_mode=fixed,beta=0.3", setup{blocks: 200, codes: csdshim.CodesInt8}},
	{"drive, int4", "hillinfer:alpha=0.2,score=int4,query=exact", setup{blocks: 200, codes: csdshim.CodesInt4}},
}

// outputs are what a sequence read and computed in a pass.
func (x *scenarioText) outputs() string { return fmt.Sprint(x.picks, x.out) }

// aloneRuns are those that were asked for already.
var aloneRuns = map[string][]string{}

// alone is what a sequence of a seed gives step by step after a prompt, by itself in host memory.
func alone(t *testing.T, policy string, seed uint64, prompt, steps int) (out []string) {
	t.Helper()
	run := fmt.Sprint(policy, seed, prompt, steps)
	if out := aloneRuns[run]; out != nil {
		return out
	}
	defer func() { aloneRuns[run] = out }()
	spec := parsed(t, policy)
	s := openScenario(t, spec, setup{})
	defer s.close(t)
	x := s.text(t, "alone", spec)
	x.seed = seed
	if err := s.prompt(x, prompt, 64); err != nil {
		t.Fatal(err)
	}
	for range steps {
		if err := s.step(x); err != nil {
			t.Fatal(err)
		}
		s.check(t)
		out = append(out, x.outputs())
	}
	return out
}

// TestBatchIsAlone: what a sequence reads and computes in a batch is what it does alone, wherever its tokens lie.
func TestBatchIsAlone(t *testing.T) {
	const steps = 10
	for _, place := range places {
		bubble(t, place.name, func(t *testing.T) {
			spec := parsed(t, place.policy)
			s := openScenario(t, spec, place.with)
			defer s.close(t)
			var texts []*scenarioText
			var want [][]string
			for i, prompt := range []int{250, 201, 144} {
				x := s.text(t, fmt.Sprint("text ", i), spec)
				if err := s.prompt(x, prompt, 64); err != nil {
					t.Fatal(err)
				}
				s.check(t)
				texts, want = append(texts, x), append(want, alone(t, place.policy, x.seed, prompt, steps))
			}
			for step := range steps {
				if err := s.step(texts...); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				s.check(t)
				for i, x := range texts {
					if got := x.outputs(); got != want[i][step] {
						t.Errorf("step %d, sequence %d: picks or outputs differ from those alone in host memory", step, i)
					}
				}
			}
		})
	}
}

// hoard is a store with memory kept for later transfers, which it gives back when it is asked to.
type hoard struct {
	offload.Store
	bytes int64
}

func (h *hoard) Stats() offload.Stats {
	st := h.Store.Stats()
	st.HostBytes += h.bytes
	return st
}

func (h *hoard) Trim() { h.bytes = 0; h.Store.Trim() }

// TestStoreGivesBackFirst: a step that has no room is not refused before the store has given back what it keeps for later transfers,
// whether that alone takes all memory or leaves too little for the step's plan.
func TestStoreGivesBackFirst(t *testing.T) {
	for _, blocks := range []int64{90, 70} {
		bubble(t, fmt.Sprint(blocks), func(t *testing.T) {
			spec := parsed(t, "full")
			s := openScenario(t, spec, setup{blocks: 90})
			defer s.close(t)
			x := s.text(t, "text", spec)
			if err := s.prompt(x, 250, 64); err != nil {
				t.Fatal(err)
			}
			h := &hoard{Store: s.store, bytes: s.shared.o.BudgetBytes / 90 * blocks}
			s.shared.o.Store = h
			if err := s.step(x); err != nil || h.bytes != 0 {
				t.Errorf("a step beside %d bytes: %v", h.bytes, err)
			}
			s.check(t)
		})
	}
}

// TestFailureStaysItsOwn: a sequence that fails in some layer is taken back, the others of the batch read and compute what they would have,
// and the failed one goes on as if it had not been tried.
func TestFailureStaysItsOwn(t *testing.T) {
	const prompt, steps = 200, 4
	for i, place := range places {
		for at := range 3 {
			if at != i%3 && !thorough() {
				continue
			}
			bubble(t, fmt.Sprint(place.name, ", layer ", at), func(t *testing.T) {
				spec := parsed(t, place.policy)
				s := openScenario(t, spec, place.with)
				defer s.close(t)
				a, b := s.text(t, "a", spec), s.text(t, "b", spec)
				wantA, wantB := alone(t, place.policy, a.seed, prompt, steps), alone(t, place.policy, b.seed, prompt, steps)
				if err := errors.Join(s.prompt(a, prompt, 64), s.prompt(b, prompt, 64)); err != nil {
					t.Fatal(err)
				}
				s.broken = func(layer int, p *Pass) {
					if layer == at {
						p.Fail(0, errTest)
					}
				}
				if err := s.step(a, b); !errors.Is(err, errTest) {
					t.Fatalf("failed with %v", err)
				}
				s.broken = nil
				s.check(t)
				if a.Read() != prompt || b.Read() != prompt+1 || b.outputs() != wantB[0] {
					t.Fatalf("%d and %d read; the other's outputs changed: %v", a.Read(), b.Read(), b.outputs() != wantB[0])
				}
				for step := 1; step < steps; step++ {
					if err := s.step(b, a); err != nil {
						t.Fatal(err)
					}
					s.check(t)
					if dropping := strings.Contains(place.policy, "h2o"); a.outputs() != wantA[step-1] && !dropping || b.outputs() != wantB[step] {
						t.Errorf("step %d differs behind a failure", step)
					}
				}
			})
		}
	}
}

// TestFailedPassIsTakenBack: where a whole pass ends early all of its rows are gone, prompts' and steps', and can be tried again.
func TestFailedPassIsTakenBack(t *testing.T) {
	for _, place := range places {
		if strings.Contains(place.policy, "h2o") {
			continue // what it dropped in the layers before is gone
		}
		bubble(t, place.name, func(t *testing.T) {
			spec := parsed(t, place.policy)
			s := openScenario(t, spec, place.with)
			defer s.close(t)
			x := s.text(t, "a", spec)
			want := alone(t, place.policy, x.seed, 180, 3)
			s.broken = func(layer int, p *Pass) {
				if layer == 1 && p.Rows[0].Reading != Chunk {
					p.Fail(0, errTest)
				}
			}
			if err := s.prompt(x, 180, 64); !errors.Is(err, errTest) {
				t.Fatal(err)
			}
			s.check(t)
			if x.Read() != 128 {
				t.Fatalf("%d tokens of two chunks are read", x.Read())
			}
			s.broken = nil
			if err := s.prompt(x, 180-128, 64); err != nil {
				t.Fatal(err)
			}
			for _, w := range want {
				s.broken = func(layer int, p *Pass) {
					if layer == 2 {
						p.Fail(0, errTest)
					}
				}
				if err := s.step(x); !errors.Is(err, errTest) {
					t.Fatal(err)
				}
				s.check(t)
				s.broken = nil
				if err := s.step(x); err != nil || x.outputs() != w {
					t.Fatalf("%v; outputs differ behind a pass that was taken back", err)
				}
			}
		})
	}
}

// TestFailedPromptLeavesNothing: another prompt behind one that failed in its last layer is read as if it were the first: scales of keys
// and what is hot are its own.
func TestFailedPromptLeavesNothing(t *testing.T) {
	for _, place := range places {
		bubble(t, place.name, func(t *testing.T) {
			spec := parsed(t, place.policy)
			s := openScenario(t, spec, place.with)
			defer s.close(t)
			x := s.text(t, "a", spec)
			want, seed := alone(t, place.policy, 9, 150, 3), x.seed
			s.broken = func(layer int, p *Pass) {
				if layer == 2 {
					p.Fail(0, errTest)
				}
			}
			if err := s.prompt(x, 60, 64); !errors.Is(err, errTest) {
				t.Fatal(err)
			}
			s.broken = nil
			s.check(t)
			if x.seed = 9; x.Read() != 0 || seed == 9 {
				t.Fatalf("%d tokens read", x.Read())
			}
			if err := s.prompt(x, 150, 150); err != nil {
				t.Fatal(err)
			}
			for _, w := range want {
				if err := s.step(x); err != nil || !strings.Contains(place.policy, "h2o") && x.outputs() != w {
					t.Fatalf("%v; outputs differ from those without a failed prompt", err)
				}
				s.check(t)
			}
		})
	}
}

// TestLostReadsFailOne: what the backing store cannot read fails the sequence that wants it, says so, and no other.
func TestLostReadsFailOne(t *testing.T) {
	for _, place := range places {
		if place.with.blocks == 0 || place.name == "streamed, dropping" {
			continue
		}
		bubble(t, place.name, func(t *testing.T) {
			spec := parsed(t, place.policy)
			with := place.with
			with.blocks = 110
			s := openScenario(t, spec, with)
			defer s.close(t)
			a, b := s.text(t, "a", spec), s.text(t, "b", spec)
			if err := errors.Join(s.prompt(a, 400, 64), s.prompt(b, 400, 64)); err != nil {
				t.Fatal(err)
			}
			want, home := alone(t, place.policy, b.seed, 400, 12), a.Home()
			s.lose(home)
			failed := 0
			for step := range want {
				err := s.step(a, b)
				s.check(t)
				if err != nil {
					failed++
					if !errors.Is(err, errTest) {
						t.Fatalf("step %d: %v", step, err)
					}
				}
				if int(b.Read()) != 401+step || b.outputs() != want[step] {
					t.Fatalf("step %d: the sequence that has its tokens failed too, or differs: %v", step, err)
				}
			}
			if failed == 0 {
				t.Error("nothing was read of what is lost")
			}
			s.lose(0)
			s.wait()
			if err := s.step(a); err != nil {
				t.Errorf("what can be read again is not: %v", err)
			}
		})
	}
}

// lose has reads of a sequence's home fail, by whatever call; 0 = none.
func (s *scenario) lose(home uint64) {
	s.store.Change(func() {
		s.store.Fail = func(key offload.Key, write bool) error {
			if !write && key.Seq == home {
				return errTest
			}
			return nil
		}
	})
	if s.drive != nil {
		s.drive.mu.Lock()
		defer s.drive.mu.Unlock()
		s.drive.lost = home
	}
}

// wait lets what is under way end.
func (s *scenario) wait() {
	s.settle()
	_ = clock.Real().Sleep(testContext, time.Minute)
	s.settle()
}

// TestGuessesAreTakenBack: a step's rows behind the first are guesses; what was wrong is cut, and the sequence goes on as without them.
func TestGuessesAreTakenBack(t *testing.T) {
	for _, with := range []setup{{}, {blocks: 60}} {
		bubble(t, fmt.Sprint(with.blocks, " blocks"), func(t *testing.T) {
			spec := parsed(t, "full")
			s := openScenario(t, spec, with)
			defer s.close(t)
			x := s.text(t, "a", spec)
			want := alone(t, "full", x.seed, 150, 8)
			if err := s.prompt(x, 150, 64); err != nil {
				t.Fatal(err)
			}
			for at := 0; at < 6; at += 2 {
				if err := s.pass(kernels.Decode, Rows{Sequence: x.Sequence, Reading: Step, New: 4, Pos: x.next(4), Len: int(x.Read()) + 4}); err != nil {
					t.Fatal(err)
				}
				if err := x.Truncate(x.Read() - 3); err != nil { // one of three guesses is right
					t.Fatal(err)
				}
				s.check(t)
				if err := s.step(x); err != nil || x.outputs() != want[at+1] {
					t.Fatalf("step %d: %v; or outputs differ behind wrong guesses", at+1, err)
				}
			}
		})
	}
}

// TestFailedRowsReadNothing: until the layer's border the rows of a sequence that has failed stay between the others', with views of no
// token, and what a drive had computed of them is not shown.
func TestFailedRowsReadNothing(t *testing.T) {
	s := openScenario(t, parsed(t, "full"), setup{bare: true})
	defer s.close(t)
	a, b := s.text(t, "a", parsed(t, "full")), s.text(t, "b", parsed(t, "full"))
	if err := errors.Join(s.prompt(a, 40, 64), s.prompt(b, 30, 64)); err != nil {
		t.Fatal(err)
	}
	var p Pass
	p.Open(s.shared)
	for _, x := range []*scenarioText{a, b} {
		p.Rows = append(p.Rows, Rows{Sequence: x.Sequence, Reading: Step, New: 1, Pos: x.next(1), Len: int(x.Read()) + 1})
	}
	if err := s.shared.Begin(&p); err != nil {
		t.Fatal(err)
	}
	if err := p.Append(0, s.rows(&p, ofKeys, 0, 64), s.rows(&p, ofValues, 0, 64)); err != nil {
		t.Fatal(err)
	}
	p.Select(0, nil)
	p.Fail(0, errTest)
	seqs := p.Fetch(0)
	p.Undo(false)
	if p.Undo(false); len(seqs) != 2 || len(seqs[0].Views) != 2 || seqs[0].Views[0].Tokens() != 0 || seqs[1].Views[0].Tokens() != 31 || seqs[0].Pos[0] != 40 {
		t.Errorf("rows of a failed sequence read %+v", seqs[0])
	}
	if a.seq.Tokens(0, 0) != 40 || b.seq.Tokens(0, 0) != 31 {
		t.Errorf("%d and %d tokens, want 40, without what the pass added, and 31", a.seq.Tokens(0, 0), b.seq.Tokens(0, 0))
	}
	p.Undo(true)
	s.check(t)
}

// TestOverlapFailsOnJoin: what fails in the background is noted when the pass joins it, of the row that it belongs to.
func TestOverlapFailsOnJoin(t *testing.T) {
	s := openScenario(t, parsed(t, "full"), setup{bare: true})
	defer s.close(t)
	var p Pass
	p.Open(s.shared)
	p.Rows = make([]Rows, 2)
	s.shared.overlap = overlap{stop: make(chan struct{}), done: make(chan struct{}), pass: &p, errs: []error{nil, errTest}}
	close(s.shared.overlap.done)
	if p.Failed() {
		t.Error("a row has failed before the join")
	}
	if err := p.Join(); err != nil || p.Rows[0].Err != nil || !errors.Is(p.Rows[1].Err, errTest) {
		t.Errorf("%v; %v and %v", err, p.Rows[0].Err, p.Rows[1].Err)
	}
}

// thorough reports whether whole tables are wanted, as in CI.
func thorough() bool { return os.Getenv("TERRACE_TEST_THOROUGH") != "" }
