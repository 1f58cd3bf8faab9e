package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/tierspec"
	"terrace/internal/units"
	"terrace/policy"
)

// kvFlags say where KV lives and what is kept and read of it.
type kvFlags struct {
	policy    string // "" = the model's own: what its trained indexer chooses, full where it has none
	own       string // that, once the model is open
	tiers     []string
	store     bool  // KV is kept for later runs: all of it
	beside    int64 // memory that stores of prompts may take
	positions bool  // the command looks at every position of every layer
}

func (f *kvFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVar(&f.policy, "policy", "", "KV policy, name:key=value,… joined by + (see 'infer policies'; default: full, or indexer where the model has one)")
	p.StringArrayVar(&f.tiers, "tier", nil, tierHelp)
}

func (f *kvFlags) policyName() string { return orDefault(f.policy, orDefault(f.own, "full")) }

// tierHelp says how a tier is given.
var tierHelp = "tier of the KV cache, fastest first: " + tierspec.Forms(tierspec.Running) + " (repeats; device: xla backends; default: host without a cap; valkey, s3 and what key prompts=SIZE names of host and ssd keep prompts, as --store)"

// tierList reads tiers as a user gives them: the folders above theirs must be there.
func tierList(specs []string) ([]tier.Tier, error) {
	tiers, err := parseTiers(specs)
	if err != nil {
		return nil, err
	}
	for i, t := range tiers {
		if t.Kind != tier.SSD {
			continue
		}
		if err := parentThere(t.Place); err != nil {
			return nil, usageErrorf("--tier %s: %v", specs[i], err)
		}
	}
	return tiers, nil
}

// parseTiers reads tiers, also those below a user's folder that a command makes for each of its engines.
func parseTiers(specs []string) ([]tier.Tier, error) {
	var out []tier.Tier
	for _, spec := range specs {
		t, err := tierspec.Parse(spec)
		if err != nil {
			return nil, usageErrorf("--tier: %v", err)
		}
		out = append(out, t)
	}
	if err := tier.Check(out); err != nil {
		return nil, usageErrorf("--tier: %v", err)
	}
	return out, nil
}

// checkTiers refuses the --tier flags of a command before it does anything, and notes the folders that it will make. Those that keep prompts
// become the command's last --store flags.
func (a *app) checkTiers(cmd *cobra.Command) error {
	flag := cmd.Flags().Lookup("tier")
	if flag == nil {
		return nil
	}
	specs, err := cmd.Flags().GetStringArray("tier")
	if err != nil {
		return err
	}
	var own []string
	for _, text := range specs {
		t, err := tierspec.Parse(text)
		if err != nil || cmd.Flags().Lookup("store") == nil { // said below
			own = append(own, text)
			continue
		}
		running, stored := tierspec.Split([]tier.Tier{t})
		for _, r := range running {
			if len(stored) > 0 {
				text = r.String()
			}
			own = append(own, text)
		}
		for _, s := range stored {
			if err := cmd.Flags().Set("store", s.String()); err != nil {
				return err
			}
		}
	}
	if err := flag.Value.(pflag.SliceValue).Replace(own); err != nil {
		return err
	}
	tiers, err := tierList(own)
	for _, t := range tiers {
		if t.Kind == tier.SSD {
			a.made.mayMake(t.Place, "terrace.lock")
		}
	}
	return err
}

// parentThere refuses a folder that would be made in one that is not there: a misspelt path, or a disk that is not mounted.
func parentThere(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	switch info, err := os.Stat(parent); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("no folder %s to make %s in: make it first, or mind the spelling", parent, filepath.Base(dir))
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", parent)
	}
	return nil
}

// openKVEngine opens an engine with the flags' policy and tiers.
func (a *app) openKVEngine(load *loadFlags, kv *kvFlags) (*loaded, error) {
	if _, err := parseTiers(kv.tiers); err != nil {
		return nil, err
	}
	spec, err := policy.ExpandFiles(kv.policy, os.ReadFile)
	if err != nil {
		return nil, usageErrorf("--policy %s: %v", kv.policy, err)
	}
	parsed, err := policy.Parse(spec)
	if err != nil {
		return nil, usageErrorf("--policy %s: %v", kv.policy, err)
	}
	load.beside = kv.beside
	load.policy, load.windowOnly = spec, parsed.Lossless() && !kv.positions && !kv.store
	l, err := a.openEngine(load, kv.tiers)
	if err == nil {
		kv.own = l.engine.Policy().String()
	}
	return l, err
}

// kvJSON is the KV part of generate's and eval's JSON.
type kvJSON struct {
	BytesPeak  map[string]int64 `json:"bytes_peak"`
	BytesMoved map[string]int64 `json:"bytes_moved"`
	HitRate    *float64         `json:"hit_rate"`              // of the fast tier; null without tiers
	TokensKept int              `json:"tokens_kept"`           // a layer and KV head, on average
	KeptShare  float64          `json:"kept_fraction"`         // of the positions read
	Droppable  float64          `json:"droppable_fraction"`    // of the bytes that the text has where nothing is dropped: windows and state stay
	BytesKept  int64            `json:"bytes_kept"`            // pages, what a policy scans beside them, and what waits to come back
	TokensRead float64          `json:"tokens_read"`           // a decode step, layer and KV head, on average
	Swaps      *swapsJSON       `json:"swaps,omitempty"`       // of a policy that prunes rows and follows them
	Scored     *scoredJSON      `json:"scored,omitempty"`      // where a drive scores
	Balance    *balanceJSON     `json:"balance,omitempty"`     // where a drive scores
	Pools      *poolsJSON       `json:"pools,omitempty"`       // where a policy's pools decide what is hot
	Reuse      *reuseJSON       `json:"reuse,omitempty"`       // of a policy that reads groups of tokens from a tier
	XCache     *xcacheJSON      `json:"xcache,omitempty"`      // where layers' rows lie below instead of keys and values
	SecondPass *secondPassJSON  `json:"second_pass,omitempty"` // of a policy that reads the prompt again
	Replays    int64            `json:"replays,omitempty"`     // times that the text was read again because a tier had lost KV
}

// scoredJSON says who scored tokens for a selecting policy, over all layers and steps.
type scoredJSON struct {
	HostTokens  int64 `json:"host_tokens"`
	DriveTokens int64 `json:"drive_tokens"`
	ScanBytes   int64 `json:"scan_bytes"`   // of codes that the drive read for them
	BlockBytes  int64 `json:"block_bytes"`  // of scores that came from the drive
	SketchBytes int64 `json:"sketch_bytes"` // low-bit keys in host memory
	SavedBytes  int64 `json:"saved_bytes"`  // those of the tokens that the drive scores
	Questions   int64 `json:"questions"`    // to the drive
	Messages    int64 `json:"messages"`     // that they went in
	Again       int64 `json:"again"`        // questions that were asked a second time
	Refused     int64 `json:"refused"`      // times that the drive could not score and the host did from then on
}

func scoredReport(u engine.ScoreUse) *scoredJSON {
	if u == (engine.ScoreUse{}) {
		return nil
	}
	return &scoredJSON{u.HostTokens, u.DriveTokens, u.ScanBytes, u.BlockBytes, u.SketchBytes, u.SavedBytes, u.Questions, u.Messages, u.Again, u.Refused}
}

// balanceJSON says how hillinfer divides tokens between host and drive at the end, and by which throughputs.
type balanceJSON struct {
	Mode       string   `json:"mode"`
	Beta       *float64 `json:"beta"`        // hot over cold by the formula; null = everything hot
	HotTokens  int      `json:"hot_tokens"`  // wanted, at most capacity
	Tokens     int      `json:"tokens"`      // of the session
	Capacity   int      `json:"capacity"`    // tokens that fit in host memory
	HostTokens int      `json:"host_tokens"` // that the host scores now
	Found      *float64 `json:"found_hot"`   // share of the selection in host memory, by which the formula is corrected; null = it is not

	// Bytes of KV (K and V) a second: of the host as infer profile measured it, of the drive by the profile that it mimics;
	// none where either is not known.
	Scores     string   `json:"scores"`     // host or both: who scores; host where the balance says that it is sooner done alone
	AloneS     *float64 `json:"alone_s"`    // a layer's scores by the host alone, and
	TogetherS  *float64 `json:"together_s"` // by host and drive, modelled from the rates; null = the choice was the user's
	HostRates  string   `json:"host_rates"`
	DriveRates string   `json:"drive_rates"`
	FC         *float64 `json:"f_c,omitempty"`
	FS         *float64 `json:"f_s,omitempty"`
	BC         *float64 `json:"b_c,omitempty"`
	BS         *float64 `json:"b_s,omitempty"`
	HostS      *float64 `json:"host_s,omitempty"`  // a step's modelled time on either path for 1 GB of KV, before the capacity
	DriveS     *float64 `json:"drive_s,omitempty"` // counts
}

// poolsJSON says how many tokens changed place between hot and cold, each over all layers.
type poolsJSON struct {
	Steps         int64   `json:"steps"`
	Promoted      int64   `json:"promoted"`
	Demoted       int64   `json:"demoted"`
	PromotedBytes int64   `json:"promoted_bytes"`
	Migrated      float64 `json:"migrated"` // tokens that changed place in a step over the tokens of the text, on average
}

func poolsReport(u engine.PoolUse) *poolsJSON {
	if u.Steps == 0 {
		return nil
	}
	return &poolsJSON{u.Steps, u.Promoted, u.Demoted, u.PromotedBytes, u.Migrated()}
}

// reuseJSON says how many groups of tokens a policy asked for on tiers, and where they were, over all layers and steps.
type reuseJSON struct {
	Groups     int64 `json:"groups"`      // asked for
	Found      int64 `json:"found"`       // in the buffer of what was read lately, or still in host memory
	Read       int64 `json:"read"`        // from the tier below
	GroupBytes int64 `json:"group_bytes"` // of one read: K and V of a group over all KV heads
}

func reuseReport(u engine.ReuseUse) *reuseJSON {
	if u.Asked == 0 {
		return nil
	}
	return &reuseJSON{u.Asked, u.Found, u.Read, u.GroupBytes}
}

// xcacheJSON counts what lies below as rows.
type xcacheJSON = engine.XCacheUse

func xcacheReport(u engine.XCacheUse) *xcacheJSON {
	if u == (engine.XCacheUse{}) {
		return nil
	}
	return &u
}

func balanceReport(u *engine.BalanceUse) *balanceJSON {
	if u == nil {
		return nil
	}
	b := &balanceJSON{Mode: u.Mode.String(), HotTokens: u.HotTokens, Tokens: u.Tokens, Capacity: u.Capacity, HostTokens: u.HostTokens, Scores: "both", HostRates: "none", DriveRates: "none"}
	if u.Share < 1 {
		beta := u.Share / (1 - u.Share)
		b.Beta = &beta
	}
	if w := u.Weighed; w != nil {
		b.AloneS, b.TogetherS = &w.Alone, &w.Together
		if w.Host() {
			b.Scores = "host"
		}
	}
	if u.Found >= 0 {
		b.Found = &u.Found
	}
	if u.Known() {
		host, drive := u.Times(1e9)
		b.HostRates, b.DriveRates = "measured", "modelled"
		if u.Timed {
			b.DriveRates = "timed" // f_s: how long the drive took for its answers, which wait for the profile's time
		}
		b.FC, b.FS, b.BC, b.BS, b.HostS, b.DriveS = &u.FC, &u.FS, &u.BC, &u.BS, &host, &drive
	}
	return b
}

// secondPassJSON is what reading the prompt a second time cost; it is part of the time to the first token.
type secondPassJSON struct {
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"s"`
	FLOPs   int64   `json:"flops"`
}

func secondPassReport(u engine.RepeatUse) *secondPassJSON {
	if u == (engine.RepeatUse{}) {
		return nil
	}
	return &secondPassJSON{u.Tokens, u.Time.Seconds(), u.FLOPs}
}

// swapsJSON is what following the prompt's active tokens while decoding cost.
type swapsJSON struct {
	Steps       int   `json:"steps"`
	Swaps       int   `json:"swaps"`
	Loaded      int   `json:"loaded"`         // blocks or tokens
	Revived     int   `json:"revived_tokens"` // computed late, from their stored rows
	AuxBytes    int64 `json:"aux_bytes"`      // stored rows
	ParkedBytes int64 `json:"parked_bytes"`   // pages that no step reads now

	WaitedMS float64 `json:"waited_ms"` // for such pages on their way to the tier below and back
}

func swapsReport(u engine.SwapUse) *swapsJSON {
	if u.Steps == 0 && u.AuxBytes == 0 {
		return nil
	}
	return &swapsJSON{Steps: u.Steps, Swaps: u.Swaps, Loaded: u.Loaded, Revived: u.Revived, AuxBytes: u.AuxBytes, ParkedBytes: u.ParkedBytes, WaitedMS: ms(u.Waited)}
}

func kvReport(e *engine.Engine, res *engine.Result) kvJSON {
	k, t := res.KV, e.TierUse()
	return kvJSON{BytesPeak: t.PeakBytes, BytesMoved: t.MovedBytes, HitRate: t.HitRate,
		TokensKept: int(k.Tokens + 0.5), KeptShare: k.Fraction, Droppable: k.Droppable, BytesKept: k.HeldBytes(), TokensRead: k.TokensRead, Swaps: swapsReport(k.Swaps),
		Scored: scoredReport(t.Scored), Balance: balanceReport(t.Balance), Pools: poolsReport(t.Pools), Reuse: reuseReport(t.Reuse), XCache: xcacheReport(t.XCache), SecondPass: secondPassReport(k.Repeats), Replays: t.Replays}
}

// noticeTiers says what tiers could not do since before, and what was done instead; it returns what has been used now.
func (a *app) noticeTiers(e *engine.Engine, before engine.TierUse) engine.TierUse {
	t := e.TierUse()
	if n := t.Replays - before.Replays; n > 0 {
		a.notice("a tier lost KV: the text was read again %d times", n)
	}
	if t.Scored.Refused > before.Scored.Refused {
		a.notice("the drive could not give scores: the host computed them from then on")
	}
	return t
}

// noticeBalance says how a drive's and the host's work were balanced.
func (gen *generateCommand) noticeBalance(e *engine.Engine) {
	if u := e.TierUse().Balance; u != nil {
		gen.notice("balance %s: %.1f %% of the tokens hot by %s, %d of %d are", u.Mode, 100*u.Share, balanceSource(u), u.HotTokens, u.Tokens)
	}
}

// balanceSource says what a balance was computed from.
func balanceSource(u *engine.BalanceUse) string {
	drive := "modelled"
	if u.Timed {
		drive = "timed"
	}
	switch {
	case u.Mode == policy.BetaFixed:
		return "choice"
	case !u.Known():
		return "room, for want of throughputs (infer profile)"
	case u.Found >= 0:
		return fmt.Sprintf("the host's measured and the drive's %s throughputs, %.1f %% of the selection found hot", drive, 100*u.Found)
	}
	return "the host's measured and the drive's " + drive + " throughputs"
}

// noticeKV says what a session holds: tokens, their share of what was read, and bytes.
func (c *kvCommand) noticeKV(policy string, u engine.KVUse) {
	c.notice("policy %s: %.1f tokens a layer and KV head, %.1f %% of those read, %s in pages, %s to scan", policy, u.Tokens, 100*u.Fraction,
		units.FormatBytes(u.Bytes), units.FormatBytes(u.SketchBytes))
}
