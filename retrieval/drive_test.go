package retrieval

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"terrace/csdshim"
	"terrace/kvmanager"
	"terrace/offload"
	"terrace/policy"
)

// onDrive is a scenario whose backing store scores keys, and a sequence of a prompt.
func onDrive(t *testing.T, name string, blocks, prompt int, edit func(d *fakeDrive)) (*scenario, *scenarioText) {
	t.Helper()
	spec := parsed(t, name)
	codes := csdshim.CodesInt8
	if strings.Contains(name, "int4") {
		codes = csdshim.CodesInt4
	}
	s := openScenario(t, spec, setup{blocks: blocks, codes: codes})
	if edit != nil {
		edit(s.drive)
	}
	x := s.text(t, "a", spec)
	if err := s.prompt(x, prompt, 64); err != nil {
		t.Fatal(err)
	}
	s.check(t)
	return s, x
}

// TestEveryTokenIsScoredOnce: host and drive together score each token that is ranked exactly once a layer and step, and the drive the
// cold ones.
func TestEveryTokenIsScoredOnce(t *testing.T) {
	for _, name := range []string{"hillinfer:alpha=0.2,beta_mode=fixed,beta=0.25", "hillinfer:alpha=0.2,query=exact,beta_mode=fixed,beta=0", "hillinfer:alpha=0.1,recent_in_selection=true,beta_mode=fixed,beta=1",
		"hillinfer:alpha=0.2,pools=token,beta_mode=fixed,beta=0.5", "hillinfer:alpha=0.2,score=int4,hie=false,beta_mode=fixed,beta=0.5"} {
		bubble(t, name, func(t *testing.T) {
			s, x := onDrive(t, name, 300, 320, nil)
			defer s.close(t)
			for range 12 {
				before, n := s.shared.Accounts().Scores(), int(x.Read())
				if err := s.step(x); err != nil {
					t.Fatal(err)
				}
				s.check(t)
				now := s.shared.Accounts().Scores()
				host, drive := now.HostTokens-before.HostTokens, now.DriveTokens-before.DriveTokens
				want := int64(3 * n)
				if strings.Contains(name, "recent") {
					want -= 3 * int64((n+9)/10/2)
				}
				if host+drive != want {
					t.Fatalf("of %d tokens host and drive scored %d and %d in three layers, want %d", n, host, drive, want)
				}
				if drive == 0 {
					t.Fatal("the drive scored nothing")
				}
			}
			if u := s.shared.Accounts().Scores(); u.Questions != 3*12 || u.Messages != 3*12 || u.BlockBytes < 4*u.DriveTokens || u.ScanBytes == 0 || u.Refused != 0 || u.Waited != 3*12*time.Millisecond {
				t.Errorf("%+v", u)
			}
		})
	}
}

// TestBatchAsksInOneMessage: the questions of a batch about a layer go to the drive together.
func TestBatchAsksInOneMessage(t *testing.T) {
	bubble(t, "batch", func(t *testing.T) {
		name := "hillinfer:alpha=0.2,beta_mode=fixed,beta=0.2,guess_from=0"
		s, a := onDrive(t, name, 400, 200, nil)
		defer s.close(t)
		b, c := s.text(t, "b", parsed(t, name)), s.text(t, "c", parsed(t, name))
		if err := errors.Join(s.prompt(b, 150, 64), s.prompt(c, 260, 64)); err != nil {
			t.Fatal(err)
		}
		s.drive.messages = nil
		if err := s.step(a, b, c); err != nil {
			t.Fatal(err)
		}
		if want := []int{3, 3, 3}; !slices.Equal(s.drive.messages, want) {
			t.Errorf("questions in the messages: %v, want %v", s.drive.messages, want)
		}
		if u := s.shared.Accounts().Scores(); u.Questions != 9 || u.Messages != 3 {
			t.Errorf("%+v", u)
		}
	})
}

// TestDriveThatFails: a drive that does not answer, answers too little, or does not take the scales fails the step with an error that says
// so and is known as the drive's refusal; what it stores is read on by the host.
func TestDriveThatFails(t *testing.T) {
	for what, fail := range map[string]func(d *fakeDrive){
		"no scores":      func(d *fakeDrive) { d.fail = failsOn("score") },
		"too few scores": func(d *fakeDrive) { d.extra = 3 },
		"no scales":      func(d *fakeDrive) { d.fail = failsOn("scales") },
	} {
		bubble(t, what, func(t *testing.T) {
			name := "hillinfer:alpha=0.2,beta_mode=fixed,beta=0.2"
			s, x := onDrive(t, name, 300, 250, fail)
			defer s.close(t)
			err := s.step(x)
			if !Refused(err) || !strings.Contains(err.Error(), "drive") || Gone(err) {
				t.Fatalf("the step: %v", err)
			}
			if what != "too few scores" && !errors.Is(err, errTest) {
				t.Errorf("the reason is lost: %v", err)
			}
			s.check(t)
			if x.Read() != 250 {
				t.Errorf("%d tokens read", x.Read())
			}
			s.shared.Accounts().NoteRefused()
			if u := s.shared.Accounts().Scores(); u.Refused != 1 {
				t.Errorf("%+v", u)
			}
			host, err := s.shared.NewSequence(SequenceOptions{Policy: parsed(t, name), HostScores: true})
			if err != nil {
				t.Fatal(err)
			}
			s.texts["host"] = &scenarioText{Sequence: host, seed: x.seed}
			asked := s.drive.count("score")
			if err := errors.Join(s.prompt(s.texts["host"], 250, 64), s.step(s.texts["host"])); err != nil {
				t.Errorf("a text that the host scores: %v", err)
			}
			if n := s.drive.count("score"); n != asked {
				t.Errorf("the drive was asked %d times more", n-asked)
			}
			if want := alone(t, name, x.seed, 250, 1); s.texts["host"].outputs() != want[0] {
				t.Error("the host reads other tokens")
			}
		})
	}
}

// failsOn fails a call.
func failsOn(call string) func(c string, layer int) error {
	return func(c string, _ int) error {
		if c == call {
			return errTest
		}
		return nil
	}
}

// TestWhoIsGone: errors of a connection that ended say that reading again does not help.
func TestWhoIsGone(t *testing.T) {
	for _, err := range []error{csdshim.ErrLost, csdshim.ErrTimeout} {
		if !Gone(fmt.Errorf("a drive: %w", err)) {
			t.Errorf("%v", err)
		}
	}
	if Gone(offload.ErrTier) || Gone(nil) || Refused(offload.ErrTier) {
		t.Error("a tier's error says that a drive is gone")
	}
}

// TestTokensMigrate: under the paper's pools whole tokens change place; the host takes one over once it has its keys, the drive is told, and
// the accounts say how many moved. Rounds that fail change nothing that is
// read, and never leave a token to nobody.
func TestTokensMigrate(t *testing.T) {
	for _, fails := range []string{"", "gather", "place false", "place true"} {
		bubble(t, "failing "+fails, func(t *testing.T) {
			s, x := onDrive(t, "hillinfer:alpha=0.1,pools=token,beta_mode=fixed,beta=0.2", 300, 320, nil)
			defer s.close(t)
			h := x.res.settling()
			want := alone(t, "hillinfer:alpha=0.1,pools=token,beta_mode=fixed,beta=0.2", x.seed, 320, 20)
			migrated := map[int32]bool{}
			for step := range 20 {
				if step == 8 && fails != "" || step == 0 && fails == "gather" { // places fail once some have been told
					s.drive.mu.Lock()
					s.drive.fail = failsOn(fails)
					s.drive.mu.Unlock()
				}
				if err := s.step(x); err != nil && fails != "gather" { // picks are gathered too
					t.Fatal(err)
				} else if err != nil {
					return
				}
				s.wait()
				s.check(t)
				if x.outputs() != want[step] {
					t.Fatalf("step %d reads other tokens", step)
				}
				for i := range h.hot.of[:256] {
					migrated[int32(i)] = migrated[int32(i)] || h.hot.Slot(i) >= 0
				}
				s.hotOnDrive(t, x, h)
			}
			hot := 0
			for _, was := range migrated {
				if was {
					hot++
				}
			}
			u := s.shared.Accounts().Pools()
			if u.Steps != 20 || u.Promoted == 0 || u.Demoted == 0 || u.PromotedBytes != u.Promoted*int64(s.shared.o.Shape.KVBytes) || u.Tokens < 20*320 || u.Migrated() <= 0 {
				t.Errorf("%+v", u)
			}
			if fails == "" && hot == 0 {
				t.Error("no old token became hot")
			}
		})
	}
}

// hotOnDrive: what the drive leaves to the host, the host has: never does nobody score a token.
func (s *scenario) hotOnDrive(t *testing.T, x *scenarioText, h *driveScoring) {
	t.Helper()
	s.drive.mu.Lock()
	defer s.drive.mu.Unlock()
	for i, hot := range s.drive.hot[x.Home()] {
		if hot && h.hot.Slot(int(i)) < 0 {
			t.Fatalf("token %d is hot on the drive and the host has no key of it", i)
		}
	}
}

// TestPoolAccounts: reports of two times subtract and add up.
func TestPoolAccounts(t *testing.T) {
	var u PoolUse
	u.add(100, &policy.Moves{Promote: []int32{1, 2, 3}, Demote: []int32{4}}, 10)
	before := u
	u.add(101, &policy.Moves{Promote: []int32{9}}, 10)
	if d := u.Minus(before); d != (PoolUse{1, 1, 0, 10, 101}) || before.Plus(d) != u {
		t.Errorf("%+v and %+v", before, d)
	}
	if got, want := u.Migrated(), 5.0/201; got != want {
		t.Errorf("%g of the tokens migrate a step, want %g", got, want)
	}
	if (PoolUse{}).Migrated() != 0 {
		t.Error("a share of nothing")
	}
	r := ReuseUse{5, 3, 2, 64}
	if d := (ReuseUse{9, 5, 4, 64}).Minus(r); d != (ReuseUse{4, 2, 2, 64}) || r.Plus(d) != (ReuseUse{9, 5, 4, 64}) {
		t.Errorf("%+v", d)
	}
}

// measured is a drive and a host with these rates, in bytes of KV a second.
func measured(d *fakeDrive) {
	d.id = csdshim.Identity{Profile: "test", Keys: "ddr", LinkBytesPerS: 1e9, NANDBytesPerS: 2e9, ScanBytesPerS: 1e9}
}

// TestHostOrDrive: where the policy leaves it open, the drive scores cold tokens only if that ends sooner than the host alone, its round
// trip counted, or the host has no room for all low-bit keys; what is read does not depend on it.
func TestHostOrDrive(t *testing.T) {
	for _, c := range []struct {
		what   string
		scan   float64 // the host's
		drives float64 // the drive's
		trip   time.Duration
		blocks int
		host   bool
	}{
		{"a slow host", 1e6, 1e9, time.Microsecond, 400, false},
		{"a fast host", 1e12, 1e9, time.Microsecond, 400, true},
		{"a drive far away", 1e9, 1e9, time.Second, 400, true},
		{"a fast host with room for codes, and a drive that scores as fast as it reads", 1e12, 1e9, time.Microsecond, 72, false},
		{"a fast host with room for codes, and a drive that scores slowly", 1e12, 2e7, time.Microsecond, 72, true},
		{"a fast host without room for codes", 1e12, 2e7, time.Microsecond, 60, false},
	} {
		bubble(t, c.what, func(t *testing.T) {
			spec := parsed(t, "hillinfer:alpha=0.2")
			s := openScenario(t, spec, setup{blocks: c.blocks, codes: csdshim.CodesInt8, edit: func(o *Options, _ *kvmanager.Options) {
				o.Host = offload.HostRates{Threads: 1, Scan: map[string]float64{"int8": c.scan}, Copy: 1e9}
			}})
			defer s.close(t)
			measured(s.drive)
			s.drive.id.ScanBytesPerS, s.drive.trip = c.drives, c.trip
			x := s.text(t, "a", spec)
			if err := s.prompt(x, 400, 64); err != nil {
				t.Fatal(err)
			}
			want := alone(t, "hillinfer:alpha=0.2", x.seed, 400, 3)
			for step := range 3 {
				if err := s.step(x); err != nil || x.outputs() != want[step] {
					t.Fatalf("step %d: %v, or other tokens", step, err)
				}
				s.check(t)
			}
			b := s.shared.Accounts().Balance()
			if b == nil || b.Weighed == nil {
				t.Fatalf("nothing was weighed: %+v", b)
			}
			if b.Weighed.Host() != c.host || (x.res.settling() == nil) != c.host {
				t.Errorf("the host scores alone: %v, want %v: %+v", b.Weighed.Host(), c.host, b.Weighed)
			}
			if asked := s.drive.count("score") > 0; asked == c.host {
				t.Errorf("the drive was asked: %v", asked)
			}
			if c.host && (b.HotTokens != b.Capacity || b.HostTokens != b.Tokens) {
				t.Errorf("the host scores all of %d tokens, %d of %d hot", b.Tokens, b.HotTokens, b.Capacity)
			}
		})
	}
}

// TestWeighByHand computes what a layer's scores take.
func TestWeighByHand(t *testing.T) {
	b := policy.Balanced{Balance: policy.Balance{FC: 100, FS: 50}, Share: 0.25}
	w := Weigh(b, 1000, 1, 2)
	if w.Alone != 10 || w.Together != 2+750.0/50 || w.RoundTrip != 2 || w.Host() {
		t.Errorf("%+v", w)
	}
	if w.Room = CodesAndKV; !w.Host() {
		t.Error("10 seconds alone against 17 together, with room: the host")
	}
	if w := Weigh(policy.Balanced{Balance: policy.Balance{FC: 100, FS: 1e9}, Share: 0.9}, 1000, 1, 0); w.Together != 9 {
		t.Errorf("together they take as long as the host's part: %+v", w)
	}
	w = Weigh(policy.Balanced{Balance: policy.Balance{FC: 100, FS: 50}, Share: 0.9}, 1000, 0.25, 2)
	if w.Together != 2+750.0/50 {
		t.Errorf("no more is hot than fits: %+v", w)
	}
	w.Room = CodesOnly
	for reads, host := range map[float64]bool{7: true, 7.5: false} {
		if w.Reads = reads; w.Host() != host {
			t.Errorf("10 seconds alone and %g of reads against 17 together: the host, %v", reads, !host)
		}
	}
}

// TestReadTimeByHand computes what single tokens take to come from a drive.
func TestReadTimeByHand(t *testing.T) {
	id := csdshim.Identity{PageBytes: 4096, LinkBytesPerS: 1000, NANDBytesPerS: 8000}
	for _, c := range []struct {
		keys  string
		bytes int64
		want  float64
	}{
		{"ddr", 768, 10 * 0.768},     // the link
		{"nand", 768, 10 * 1.024},    // two pages of flash
		{"ddr", 9000, 10 * 9},        // the link
		{"nand", 16384, 10 * 16.384}, // as many pages as one would need
		{"nand", 8194, 10 * 8.194},   // the link, though each part's last byte has a page of its own
	} {
		if id.Keys = c.keys; math.Abs(readTime(id, 10, c.bytes)-c.want) > 1e-9 {
			t.Errorf("%s, %d bytes: %g s, want %g", c.keys, c.bytes, readTime(id, 10, c.bytes), c.want)
		}
	}
	if readTime(csdshim.Identity{}, 10, 768) != 0 {
		t.Error("a drive without limits takes time")
	}
}

// TestSplitFollowsRates: as many tokens stay hot as the policy's balance of host and drive says, but no more than fit.
func TestSplitFollowsRates(t *testing.T) {
	for _, beta := range []string{"0", "0.25", "1", "1000"} {
		bubble(t, "beta "+beta, func(t *testing.T) {
			s, x := onDrive(t, "hillinfer:alpha=0.1,beta_mode=fixed,beta="+beta, 200, 400, nil)
			defer s.close(t)
			c := x.res.(*cached)
			for range 4 {
				if err := s.step(x); err != nil {
					t.Fatal(err)
				}
				s.check(t)
				n := int(x.Read())
				b := s.shared.Accounts().Balance()
				capacity := c.budget.hotCapacity(n)
				want := min(x.set.Placer.HotTokens(n, capacity), capacity)
				if b.Tokens != n || b.Capacity != capacity || b.HotTokens != want || b.Timed {
					t.Fatalf("%+v, want %d of %d hot, %d fit", b, want, n, capacity)
				}
				if held := c.drive.held(); b.HostTokens != held || held > max(want, 0)+16+1 {
					t.Fatalf("the host holds %d, %d are to be hot", held, want)
				}
			}
		})
	}
}

// TestOpenDriveCodes: a policy that ranks by what a drive computes has it make those codes; quantised keys and policies that choose by
// head are scored by the host.
func TestOpenDriveCodes(t *testing.T) {
	for name, want := range map[string]csdshim.Codes{"hillinfer": csdshim.CodesInt8, "hillinfer:score=int4": csdshim.CodesInt4, "hillinfer:score=fp16": csdshim.CodesHalf,
		"hillinfer:drive=false": csdshim.CodesNone, "hillinfer:heads=kv_head": csdshim.CodesNone, "quest": csdshim.CodesNone, "full": csdshim.CodesNone} {
		needs := parsed(t, name).Needs()
		if got := driveCodes(&needs); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	needs := policy.Needs{SharedAcrossHeads: true, Sketch: policy.Sketch{Kind: policy.SketchProduct}}
	if driveCodes(&needs) != csdshim.CodesProduct {
		t.Error("product codes")
	}
	ctx, cancel := context.WithCancel(testContext)
	cancel()
	if _, err := OpenDrive(ctx, t.TempDir()+"/none", offload.Shape{}, needs, offload.CSDOptions{}); err == nil {
		t.Error("a drive at no socket opens")
	}
	if d, err := OpenDrives(ctx, []string{t.TempDir() + "/none"}, offload.AttendShape{KVHeads: 2}, offload.DrivesOptions{}); err == nil || d != nil {
		t.Errorf("drives at no socket open: %v, %v", d, err)
	}
}
