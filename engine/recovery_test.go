package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"terrace/csdshim"
	"terrace/engine/fakes"
	"terrace/internal/clock"
	"terrace/internal/vfs"
	"terrace/offload"
	"terrace/policy"
	"terrace/retrieval"
)

// attempt is forced that may fail.
func attempt(t testing.TB, e *Engine, prompt, next []int) (out [][]float32, err error) {
	t.Helper()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.Prefill(context.Background(), prompt, PrefillHooks{}); err != nil {
		return nil, err
	}
	out = append(out, append([]float32(nil), s.Logits()...))
	for _, id := range next {
		if err := s.Decode(id); err != nil {
			return out, err
		}
		out = append(out, append([]float32(nil), s.Logits()...))
	}
	return out, nil
}

// tight is a budget that leaves most of the tests' texts to the lower tier.
func tight(policy string) int64 {
	if strings.HasPrefix(policy, "hillinfer") || strings.HasPrefix(policy, "quest") {
		return 60 * 4096
	}
	return 40 * 4096
}

// sound checks the outcome of a text on faulty tiers: right to the bit as far as it came, or one line that says why not.
func sound(t testing.TB, what string, want, got [][]float32, err error) {
	t.Helper()
	if d := fakes.Worst(want[:len(got)], got); d != 0 {
		t.Errorf("%s: wrong numbers: logits differ by %g (%v)", what, d, err)
	}
	if err == nil && len(got) != len(want) {
		t.Errorf("%s: %d of %d steps and no error", what, len(got), len(want))
	}
	if err != nil && (strings.Contains(err.Error(), "\n") || errors.Is(err, ErrInternal)) {
		t.Errorf("%s: %v", what, err)
	}
}

// rotten is a store that loses a record of the first sequence for good.
type rotten struct {
	offload.Store
	mu    sync.Mutex
	reads int
	after int
	key   *offload.Key
}

func (r *rotten) Read(ctx context.Context, recs []offload.Record) error {
	r.mu.Lock()
	r.reads++
	if r.key == nil && r.reads > r.after {
		r.key = &recs[0].Key
	}
	bad := r.key
	r.mu.Unlock()
	for _, rec := range recs {
		if bad != nil && rec.Key == *bad {
			return fmt.Errorf("offload: %v: %w", rec.Key, offload.ErrCorrupt)
		}
	}
	return r.Store.Read(ctx, recs)
}

// TestLostRecord: a record that cannot be read any more costs reading the text again, prompt and steps, and no number.
func TestLostRecord(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 1), fakes.IDs(12, 2)
	for _, policy := range []string{"full", "hillinfer:alpha=0.1,guess_from=1", "h2o:budget=64", "quest:budget=64"} {
		o := Options{Threads: 2, Policy: policy, ChunkTokens: 32}
		want := forced(t, small(t, o), prompt, next)
		for _, after := range []int{0, 3, 40} {
			store := &rotten{Store: below(t, o), after: after}
			o.Store, o.KVBudgetBytes = store, tight(policy)
			e := small(t, o)
			got, err := attempt(t, e, prompt, next)
			sound(t, policy, want, got, err)
			if use := e.TierUse(); store.key != nil && (err != nil || use.Replays == 0) {
				t.Errorf("%s, after %d reads: %d times read again, %v", policy, after, use.Replays, err)
			}
			o.Store, o.KVBudgetBytes = nil, 0
		}
	}
}

// TestLostRecordOfFork: a text whose beginning was read for several policies is read again as one prompt under its own; while
// its rest is missing, or where the beginning was read in parts, a lost record is an error and never a wrong number.
func TestLostRecordOfFork(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 1), fakes.IDs(12, 2)
	spec, err := policy.Parse("snapkv:budget=270,window_size=8")
	if err != nil {
		t.Fatal(err)
	}
	for _, parts := range [][]int{{280}, {100, 280}} {
		run := func(e *Engine) (out [][]float32, err error) {
			base, err := e.NewSession(e.Policy())
			if err != nil {
				return nil, err
			}
			defer base.Close()
			from := 0
			for _, to := range parts {
				if err := base.Prefill(t.Context(), prompt[from:to], PrefillHooks{}); err != nil {
					return nil, err
				}
				from = to
			}
			s, err := base.Fork(spec)
			if err != nil {
				return nil, err
			}
			defer s.Close()
			if err := s.Prefill(t.Context(), prompt[from:], PrefillHooks{}); err != nil {
				return nil, err
			}
			for _, id := range next {
				if err := s.Decode(id); err != nil {
					return out, err
				}
				out = append(out, append([]float32(nil), s.Logits()...))
			}
			return out, nil
		}
		o := Options{Threads: 2, ChunkTokens: 32}
		want, err := run(small(t, o))
		if err != nil {
			t.Fatal(err)
		}
		again, refused := 0, 0
		for after := 0; after < 400; after += 16 {
			store := &rotten{Store: below(t, o), after: after}
			o.Store, o.KVBudgetBytes = store, 40*4096
			e := small(t, o)
			got, err := run(e)
			sound(t, fmt.Sprintf("%v, after %d reads", parts, after), want, got, err)
			if err != nil {
				refused++
			} else if e.TierUse().Replays > 0 {
				again++
			}
			o.Store, o.KVBudgetBytes = nil, 0
		}
		if len(parts) == 1 && again == 0 || len(parts) > 1 && refused == 0 {
			t.Errorf("%v: read again %d times, refused %d times", parts, again, refused)
		}
	}
}

// TestFaultyTier: operations of an SSD's file that fail by a seed end in equal numbers or in one clear error.
func TestFaultyTier(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(250, 1), fakes.IDs(8, 2)
	kinds := []vfs.FaultKind{vfs.EIO, vfs.Flip, vfs.Short, vfs.ENOSPC}
	for _, policy := range []string{"full", "hillinfer:alpha=0.1,guess_from=1"} {
		o := Options{Threads: 2, Policy: policy, ChunkTokens: 32}
		e := small(t, o)
		want, shape := forced(t, e, prompt, next), e.shape()
		good, struck := 0, int64(0)
		for seed := range uint64(12) {
			chance := []float64{0.01, 0.05, 0.3}[seed%3]
			faults := &vfs.Faults{Seed: seed, After: 8, Chance: map[vfs.OpKind]float64{vfs.OpRead: chance, vfs.OpWrite: chance}, Kinds: kinds[:1+seed%3+seed/11]}
			store, err := offload.OpenSSD(shape, offload.SSDOptions{Dir: "d", FS: &vfs.Faulty{FS: vfs.NewMem(16 << 20), Faults: faults}, CapacityBytes: 8 << 20})
			if err != nil {
				t.Fatal(err)
			}
			o.Store, o.KVBudgetBytes = store, tight(policy)+8*4096 // for the store's staging
			e := small(t, o)
			got, err := attempt(t, e, prompt, next)
			sound(t, fmt.Sprintf("%s, seed %d", policy, seed), want, got, err)
			if err == nil {
				good++
			}
			_, n := faults.Ops()
			struck += n
			faults.Stop()
			if err := errors.Join(e.Close(), store.Close()); err != nil {
				t.Error(err)
			}
			o.Store, o.KVBudgetBytes = nil, 0
		}
		if good < 3 || good == 12 || struck < 30 {
			t.Errorf("%s: %d of 12 texts came through %d faults", policy, good, struck)
		}
	}
}

// TestFaultyDrive: a drive that stalls for a while, breaks off, cuts, garbles or repeats its answers, fails requests or damages
// pages, at each kind of request: equal numbers, or one clear error; never a wrong number.
func TestFaultyDrive(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(250, 1), fakes.IDs(6, 2)
	for policy, requests := range map[string][]string{"full": {"write", "fetch"}, "hillinfer:alpha=0.1,guess_from=1": {"write", "score", "gather", "scales"},
		"hillinfer:alpha=0.1,guess_from=1,pools=token,beta_mode=fixed,beta=0.2": {"promote", "gather"}} {
		o := Options{Threads: 2, Policy: policy, ChunkTokens: 32}
		want := forced(t, small(t, o), prompt, next)
		for kind, survives := range map[csdshim.FaultKind]bool{csdshim.FaultSlow: true, csdshim.FaultDisconnect: true, csdshim.FaultShort: true, csdshim.FaultGarbage: true,
			csdshim.FaultFlip: true, csdshim.FaultTwice: false, csdshim.FaultFail: false, csdshim.FaultCorrupt: false} {
			for i, on := range requests {
				t.Run(fmt.Sprintf("%s/%s on %s", policy, kind, on), func(t *testing.T) {
					t.Parallel()
					drive := newTestDrive(t)
					drive.faults = csdshim.Faults{Seed: uint64(i), Rules: []csdshim.Fault{{Kind: kind, On: on, After: 3, Times: 1, For: time.Millisecond}}}
					o := o
					o.Store, o.KVBudgetBytes = impatient(t, o, drive.start()), tight(policy)
					got, err := attempt(t, small(t, o), prompt, next)
					sound(t, "faulty drive", want, got, err)
					if survives && err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// impatient is a drive's store for an engine of these options, to which a drive counts as stalled after a second, not after ten.
func impatient(t testing.TB, o Options, d *testDrive) offload.Store {
	t.Helper()
	e := small(t, o)
	store, err := retrieval.OpenDrive(t.Context(), d.socket, e.shape(), e.policy.Needs(), offload.CSDOptions{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// TestDriveRestarts: a drive that ends and comes back while a text is generated costs nothing but time, where its folder is
// empty too; one that stays away ends the text with one line, soon.
func TestDriveRestarts(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(250, 1), fakes.IDs(9, 2)
	for _, policy := range []string{"full", "hillinfer:alpha=0.1,guess_from=1"} {
		o := Options{Threads: 2, Policy: policy, ChunkTokens: 32}
		want := forced(t, small(t, o), prompt, next)
		for _, fate := range []string{"back", "back and empty", "gone"} {
			t.Run(policy+"/"+fate, func(t *testing.T) {
				t.Parallel()
				o, drive := o, newTestDrive(t)
				o.Tiers = drive.start().tiers(tight(policy))
				if fate == "gone" {
					o.Machine.Clock = clock.NewJumping() // the waits between dials
				}
				e := small(t, o)
				s, err := e.NewSession(e.Policy())
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Prefill(context.Background(), prompt, PrefillHooks{}); err != nil {
					t.Fatal(err)
				}
				got := [][]float32{append([]float32(nil), s.Logits()...)}
				for i, id := range next {
					if i == 3 {
						drive.stop()
						if fate == "back and empty" {
							drive.dir = t.TempDir()
						}
						if fate != "gone" {
							drive.start()
						}
					}
					if err = s.Decode(id); err != nil {
						break
					}
					got = append(got, append([]float32(nil), s.Logits()...))
				}
				sound(t, policy+": "+fate, want, got, err)
				if (fate == "gone") != (err != nil) || err != nil && !errors.Is(err, csdshim.ErrLost) {
					t.Errorf("%s: %s: %v", policy, fate, err)
				}
				if replays := e.TierUse().Replays; (fate == "back and empty") != (replays > 0) {
					t.Errorf("%s: %s: read again %d times", policy, fate, replays)
				}
				s.Close()
			})
		}
	}
}
