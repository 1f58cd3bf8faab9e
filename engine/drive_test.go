package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/csdshim"
	"terrace/csdshim/attend"
	"terrace/csdshim/profiles"
	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/offload"
)

// testDrive is a drive served in this process, that can be stopped and started again on the same folder.
type testDrive struct {
	t      testing.TB
	dir    string
	socket string
	faults csdshim.Faults
	keys   csdshim.KeyPlace
	stop   func()

	profile string // "" = unlimited

	drive *csdshim.Drive
}

func newTestDrive(t testing.TB) *testDrive {
	t.Helper()
	sockets, err := os.MkdirTemp("", "drive") // t.TempDir may be longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	d := &testDrive{t: t, dir: t.TempDir(), socket: filepath.Join(sockets, "s")}
	t.Cleanup(func() {
		if d.stop != nil {
			d.stop()
		}
		os.RemoveAll(sockets)
	})
	return d
}

// start serves the drive's folder.
func (d *testDrive) start() *testDrive {
	d.t.Helper()
	name := "unlimited"
	if d.profile != "" {
		name = d.profile
	}
	profile, err := profiles.Load(name)
	if err != nil {
		d.t.Fatal(err)
	}
	drive, err := csdshim.OpenDrive(d.dir, csdshim.Options{Profile: profile, CapacityBytes: 16 << 20, Keys: d.keys, NoSync: true, Faults: d.faults, Attention: attend.New()})
	if err != nil {
		d.t.Fatal(err)
	}
	d.drive = drive
	l, err := csdshim.Listen(d.socket)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- drive.Serve(ctx, l, csdshim.ServerOptions{}) }()
	d.stop = func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Error(err)
		}
		drive.Close()
		d.stop = nil
	}
	return d
}

func (d *testDrive) tiers(hostBytes int64) []tier.Tier {
	return []tier.Tier{{Kind: tier.Host, CapacityBytes: hostBytes}, {Kind: tier.CSD, Place: d.socket}}
}

// TestDriveScores: with the drive scoring the cold tokens, what a policy selects is what it selects alone: logits are equal,
// bit for bit, alone and in a batch, in every precision, with every query and balance; the host stays within its budget and
// holds low-bit keys of hot tokens only.
func TestDriveScores(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(400, 1), fakes.IDs(17, 2)
	for _, args := range []string{"alpha=0.1", "score=int4", "score=fp16,query=exact", "score=product", "score=product,query=exact,pools=token,beta_mode=fixed,beta=0.1", "scale=channel,block=64", "query=prev_step,score=int4", "recent_in_selection=true",
		"dense_layers=1", "beta_mode=fixed,beta=0.1", "beta_mode=fixed,beta=0", "beta_mode=ratio,skew=true",
		"pools=token,beta_mode=fixed,beta=0.3", "exchange=false,beta_mode=fixed,beta=0.3", "pools=token,beta_mode=fixed,beta=0.1,query=exact,score=fp16"} {
		t.Run(strings.ReplaceAll(args, ",", " "), func(t *testing.T) {
			t.Parallel()
			drive := newTestDrive(t)
			if strings.Contains(args, "int4") || strings.Contains(args, "product,") {
				drive.keys = csdshim.KeysNAND
			}
			o := Options{Threads: 2, Policy: "hillinfer:guess_from=1," + args, ChunkTokens: 32}
			want := forced(t, small(t, o), prompt, next)
			pages := map[bool]int64{false: 66, true: 80}[strings.Contains(args, "dense")]
			if strings.Contains(args, "product") { // centroids
				pages += 8
			}
			o.Tiers = drive.start().tiers(pages * 4096)
			e := small(t, o)
			if d := fakes.Worst(want, forced(t, e, prompt, next)); d != 0 {
				t.Errorf("logits differ by %g", d)
			}
			use := e.TierUse().Scored
			if use.DriveTokens == 0 || use.HostTokens == 0 { // the newest, which the drive has not, are always the host's
				t.Errorf("scored: %+v", use)
			}
			if want := ranked(args, e.m.Layers, len(prompt), len(next)); use.HostTokens+use.DriveTokens != want {
				t.Errorf("host and drive scored %d tokens together, %d were to be ranked: %+v", use.HostTokens+use.DriveTokens, want, use)
			}
			if st := drive.drive.Stats(); use.BlockBytes != 4*int64(st.TokensScored) || use.DriveTokens > int64(st.TokensScored) {
				t.Errorf("the drive scored %d tokens, the host counts %+v", st.TokensScored, use)
			} else if !strings.Contains(args, "pools=") && !strings.Contains(args, "exchange=") && use.DriveTokens != int64(st.TokensScored) {
				t.Errorf("the drive scored %d tokens where none changed hands, %d were used", st.TokensScored, use.DriveTokens) // else: while they do, both score them
			}
			if p := e.KV().PeakBytes; p > e.o.KVBudgetBytes {
				t.Errorf("%d bytes in host memory, the budget is %d", p, e.o.KVBudgetBytes)
			}
			o.Tiers = drive.tiers(130 * 4096)
			if d := fakes.Worst(want, inBatch(t, small(t, o), prompt, next)); d != 0 {
				t.Errorf("in a batch: logits differ by %g", d)
			}
		})
	}
}

// TestPartsSwitchOffAlone: without HIE, BKP, APP, CEC or the drive's scores, each alone and the first three together, the logits are those of
// hillinfer in memory, bit for bit, on a drive and on storage that cannot score; each switch changes its own part and no other:
// how many score blocks come, which tokens are hot and whether they move, how the tokens are divided, how many bytes a score reads (and
// with them what is chosen).
func TestPartsSwitchOffAlone(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(400, 1), fakes.IDs(17, 2)
	const base = "hillinfer:guess_from=1,alpha=0.1,block=16"
	want := forced(t, small(t, Options{Threads: 2, Policy: base}), prompt, next)
	half := forced(t, small(t, Options{Threads: 2, Policy: base + ",score=fp16"}), prompt, next)
	if fakes.Worst(want, half) == 0 {
		t.Error("scores in 8 bits choose what those in half precision do, in every step: this text shows nothing of CEC")
	}
	type outcome struct {
		TierUse
		blocks, scored uint64
	}
	on := func(args string) outcome {
		drive, want := newTestDrive(t), want
		if strings.Contains(args, "score=fp16") {
			want = half
		}
		o := Options{Threads: 2, Policy: base + args, ChunkTokens: 32, Tiers: drive.start().tiers(80 * 4096)}
		e := small(t, o)
		if d := fakes.Worst(want, forced(t, e, prompt, next)); d != 0 {
			t.Errorf("%q on a drive: logits differ by %g", args, d)
		}
		u := outcome{TierUse: e.TierUse(), blocks: drive.drive.Stats().ScoreBlocks, scored: drive.drive.Stats().TokensScored}
		o.Tiers, o.KVBudgetBytes = nil, 76*4096
		if strings.Contains(args, "score=fp16") {
			o.KVBudgetBytes = 96 * 4096 // the keys in half precision too
		}
		o.Store = below(t, o)
		if d := fakes.Worst(want, forced(t, small(t, o), prompt, next)); d != 0 {
			t.Errorf("%q on storage: logits differ by %g", args, d)
		}
		return u
	}
	near := func(a, b uint64) bool { return 100*max(a, b) <= 102*min(a, b) } // how much fits hot depends on what has left memory by then
	whole := on("")
	if whole.Pools.Steps != 0 || whole.blocks < 2*uint64(whole.Scored.Questions) {
		t.Errorf("the default: %+v in %d blocks", whole.TierUse, whole.blocks)
	}
	if u := on(",hie=false"); u.blocks != uint64(u.Scored.Questions) || !near(u.scored, whole.scored) || u.Pools.Steps != 0 {
		t.Errorf("without HIE: %d tokens in %d blocks, %+v; with it %d tokens", u.scored, u.blocks, u.TierUse, whole.scored)
	}
	if u := on(",exchange=false"); !near(u.blocks, whole.blocks) || !near(u.scored, whole.scored) || u.Pools.Promoted != 0 || u.Pools.Demoted == 0 {
		t.Errorf("without BKP: %d tokens in %d blocks, %+v, with it %d in %d", u.scored, u.blocks, u.Pools, whole.scored, whole.blocks)
	}
	if u := on(",beta_mode=fixed,beta=0.1"); u.Balance.HotTokens >= whole.Balance.HotTokens || u.scored <= whole.scored || u.Pools.Steps != 0 {
		t.Errorf("without APP: %+v, with it %+v", u.Balance, whole.Balance)
	}
	if u := on(",drive=false"); u.scored != 0 || u.Scored.Questions != 0 || u.Pools.Steps != 0 {
		t.Errorf("without the drive's scores: %+v", u.Scored)
	}
	if u := on(",score=fp16"); !near(u.blocks*whole.scored, whole.blocks*u.scored) || u.Scored.Questions != whole.Scored.Questions || u.Pools.Steps != 0 ||
		!near(uint64(u.Scored.ScanBytes)*whole.scored, 2*uint64(whole.Scored.ScanBytes)*u.scored) {
		t.Errorf("without CEC: %d tokens in %d blocks, %+v; with it %d in %d, %+v", u.scored, u.blocks, u.Scored, whole.scored, whole.blocks, whole.Scored)
	}
	paper := on(",pools=paper,beta_mode=fixed,beta=0.3")
	if u := paper.Pools; u.Steps != int64(len(next)) || u.Promoted == 0 || u.Demoted < u.Promoted || u.PromotedBytes != u.Promoted*3*256 || u.Tokens != 17*400+17*18/2 {
		t.Errorf("the paper's pools: %+v", u)
	} else if got := u.Migrated(); got != float64(u.Promoted+u.Demoted)/float64(u.Tokens) || got > 0.5 {
		t.Errorf("%g of the tokens move a step", got)
	}
	if u := on(",hie=false,exchange=false,beta_mode=fixed,beta=0.3"); u.Pools.Promoted != 0 || u.blocks != uint64(u.Scored.Questions) {
		t.Errorf("without all three: %+v in %d blocks", u.Pools, u.blocks)
	}
}

// ranked is how many tokens the forced steps of a text rank, over all layers: every one before the newest, but for those that
// are read whatever their scores.
func ranked(args string, layers, prompt, steps int) (sum int64) {
	if strings.Contains(args, "dense_layers=1") {
		layers--
	}
	for n := prompt; n < prompt+steps; n++ {
		if sum += int64(layers * n); strings.Contains(args, "recent_in_selection") {
			sum -= int64(layers * ((n + 4) / 5 / 2)) // half of a fifth
		}
	}
	return sum
}

var _ offload.Scorer = (*offload.CSD)(nil)

// TestBatchAsksTogether: the questions of a batch about a layer go to the drive in one message; every text is what it is in memory, also
// where a message of several, or the answer to it, is damaged or the connection breaks under it, before the first answer or behind it.
func TestBatchAsksTogether(t *testing.T) {
	t.Parallel()
	const texts = 3
	next := fakes.IDs(6, 2)
	o := Options{Threads: 2, Policy: "hillinfer:alpha=0.1,guess_from=1,beta_mode=fixed,beta=0.1", ChunkTokens: 32}
	var want [texts][][]float32
	memory := small(t, o)
	for i := range want {
		want[i] = forced(t, memory, fakes.IDs(300, uint64(5+i)), next)
	}
	for name, fault := range map[string]csdshim.Fault{"none": {}, "short": {Kind: csdshim.FaultShort}, "garbage": {Kind: csdshim.FaultGarbage}, "flip": {Kind: csdshim.FaultFlip},
		"disconnect": {Kind: csdshim.FaultDisconnect}, "all fail": {Kind: csdshim.FaultFail}, "flip between answers": {Kind: csdshim.FaultFlip, Frames: 4},
		"dies between answers": {Kind: csdshim.FaultDisconnect, Frames: 4}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, drive, kind := o, newTestDrive(t), fault.Kind
			if kind != "" {
				fault.On, fault.After, fault.Times = "score", 4, 1
				drive.faults = csdshim.Faults{Rules: []csdshim.Fault{fault}}
			}
			o.Tiers = drive.start().tiers(texts * 80 * 4096)
			e := small(t, o)
			var list []*Session
			for i := range texts {
				s, err := e.NewSession(e.Policy())
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if err := s.Prefill(t.Context(), fakes.IDs(300, uint64(5+i)), PrefillHooks{}); err != nil {
					t.Fatal(err)
				}
				list = append(list, s)
			}
			for step, id := range next {
				if err := e.DecodeBatch(list, []int{id, id, id}); err != nil {
					t.Fatal(err)
				}
				for i, s := range list {
					if d := fakes.Worst([][]float32{want[i][step+1]}, [][]float32{s.Logits()}); d != 0 {
						t.Errorf("text %d, step %d: logits differ by %g", i, step, d)
					}
				}
			}
			if u := e.TierUse().Scored; u.Questions == 0 || u.Messages*texts != u.Questions {
				t.Errorf("%d questions of %d texts in %d messages", u.Questions, texts, u.Messages)
			} else if (kind != "") != (u.Again > 0) {
				t.Errorf("fault %q: %d calls were done a second time", kind, u.Again)
			}
		})
	}
}
