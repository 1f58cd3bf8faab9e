package engine

import (
	"slices"
	"time"

	"terrace/attention"
	"terrace/engine/tier"
	"terrace/engine/xcache"
	"terrace/internal/cacheshape"
	"terrace/internal/vfs"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
	"terrace/retrieval"
	"terrace/weights/stream"
)

// ScoreUse counts the tokens that were scored, over all layers and steps, and by whom.
type ScoreUse = retrieval.ScoreUse

// BalanceUse is how a policy with a drive divides the tokens of a session between host and drive.
type BalanceUse = retrieval.BalanceUse

// PoolUse counts the tokens that a policy's pools moved.
type PoolUse = retrieval.PoolUse

// ReuseUse counts the groups of tokens that a policy asked for on tiers.
type ReuseUse = retrieval.ReuseUse

// XCacheUse counts blocks that lie below as rows.
type XCacheUse = xcache.Use

// TierUse is what the tiers have held and moved since the engine was opened, measured.
type TierUse = tier.Use

// TierUse reports the tiers' accounts.
func (e *Engine) TierUse() TierUse {
	kv := e.kv.Stats()
	u := TierUse{PeakBytes: map[string]int64{string(tier.Host): kv.PeakBytes}, MovedBytes: map[string]int64{}}
	if keeper := e.device.keeper; keeper != nil {
		d := keeper.DeviceUse()
		u.PeakBytes[string(tier.Device)] = d.KVPeakBytes
		u.MovedBytes["host>device"], u.MovedBytes["device>host"] = d.UpBytes, d.DownBytes
		u.Compute, u.Up, u.Down = d.Compute, d.Up, d.Down
	}
	e.useDrives(&u)
	if e.tiers == nil {
		return u
	}
	st, queue := e.tiers.store.Stats(), e.tiers.queue.Stats()
	levels := offload.Levels(e.tiers.store)
	for _, level := range levels {
		name, of := level.Name(), st // reads go on: one tier is asked once
		if len(levels) > 1 {
			of = level.Stats()
		}
		u.PeakBytes[name] = of.PeakBytes
		u.MovedBytes[string(tier.Host)+">"+name], u.MovedBytes[name+">"+string(tier.Host)] = of.WrittenBytes, of.ReadBytes
	}
	u.Reads, u.Paced, u.Notice = st.Reads, st.Paced, st.Notice
	u.ReadBytes, u.ReadBusy, u.Stall = st.ReadBytes, queue.Busy[0], queue.Stall
	u.Scored, u.Balance, u.Replays = e.retrieval.Accounts().Scores(), e.retrieval.Accounts().Balance(), e.replays
	u.ScoreWait = u.Scored.Waited
	u.Scored.Again, u.Pools, u.Reuse = st.Retries, e.retrieval.Accounts().Pools(), e.retrieval.Accounts().Reuse()
	e.tiers.rows.use(&u)
	u.TokensRead, u.TokensFetched = kv.TokensRead, kv.TokensFetched
	u.Rate()
	return u
}

// WeightsUse are the accounts of weights that are not all in memory.
type WeightsUse = stream.Use

// WeightsUse reports them; nil where all weights that are used stay in memory.
func (e *Engine) WeightsUse() *WeightsUse {
	store := e.m.Streamed()
	if store == nil {
		return nil
	}
	u := store.Accounts()
	return &u
}

// ExpertPlaces says where each layer's experts are now (stream.Places), by layer; nil where all weights that are used stay in memory.
func (e *Engine) ExpertPlaces() map[int]string {
	store, out := e.m.Streamed(), map[int]string{}
	for layer := 0; store != nil && layer < e.m.Layers; layer++ {
		if places := store.Places(layer); places != nil {
			out[layer] = string(places)
		}
	}
	return out
}

// DiskUse is what weights and KV have had of the disk that both lie on, weights first; nil where they do not share one.
func (e *Engine) DiskUse() []vfs.ShareUse {
	if store := e.m.Streamed(); store != nil {
		return store.Files().DiskUse()
	}
	return nil
}

// DriveUse is what a drive that attends has done.
type DriveUse = retrieval.DriveUse

// useDrives adds the accounts of drives that attend.
func (e *Engine) useDrives(u *TierUse) {
	if e.drives == nil {
		return
	}
	u.Drives, u.Replays = e.drives.Use(), e.replays
	for i, d := range u.Drives {
		name := driveName(i, len(u.Drives))
		u.PeakBytes[name], u.Paced = d.PeakBytes, u.Paced || d.Paced
		u.MovedBytes[string(tier.Host)+">"+name], u.MovedBytes[name+">"+string(tier.Host)] = d.ToDriveBytes, d.ToHostBytes
	}
}

// PolicyTime is how long policies have taken to decide, by their names (retrieval.Accounts.PolicyTime).
func (e *Engine) PolicyTime() map[string]time.Duration { return e.retrieval.Accounts().PolicyTime() }

// KVRoom is how many tokens of full KV have room in host memory, in all and now; 0 in all where there is no limit, or where it
// is not one of tokens: with a tier below, or where layers with a sliding window keep fewer.
func (e *Engine) KVRoom() (tokens, free int) {
	st, each := e.kv.Stats(), int64(e.KVBytesPerToken())
	windows := e.o.WindowOnly && slices.ContainsFunc(e.cache, func(l cacheshape.Layer) bool { return l.KV.Window > 0 })
	if st.BudgetBytes == 0 || e.tiers != nil || windows || each == 0 {
		return 0, 0
	}
	return int(st.BudgetBytes / each), int(max(0, st.BudgetBytes-st.InUseBytes) / each)
}

// KVTokens is what full KV of a text of n tokens takes, in the measure of KVRoom: whole pages, and more than n where KV is quantised
// behind a window.
func (e *Engine) KVTokens(n int) int {
	each := int64(e.KVBytesPerToken())
	if each == 0 {
		return 0
	}
	return int(e.kv.BytesFor(n) / each)
}

// PageTokens is how many tokens a page of the cache holds.
func (e *Engine) PageTokens() int { return e.kv.Format().Tokens }

// KVUse is what a session holds and reads of its KV, measured.
type KVUse struct {
	Tokens      float64 // held by a layer and KV head, on average
	Fraction    float64 // of the positions read so far
	Droppable   float64 // share of the bytes that the sequence has where nothing is dropped that policies may drop; the rest is windows and state
	Bytes       int64   // of pages
	SketchBytes int64   // of what a selecting policy scans instead of the keys
	TokensRead  float64 // by a decode step, a layer and KV head, on average; 0 before the first
	StepKV      float64 // bytes of K and V that a decode step reads over all layers, on average
	StepScanned float64 // bytes that it scans to choose them
	StepMost    int64   // bytes that a decode step has taken of the cache's budget at most, whatever other sessions had
	Swaps       SwapUse // of a policy that prunes rows
	Repeats     RepeatUse
}

// HeldBytes is all that the text takes: pages, what a policy scans, and what waits to come back (rows and parked pages).
func (u KVUse) HeldBytes() int64 {
	return u.Bytes + u.SketchBytes + u.Swaps.AuxBytes + u.Swaps.ParkedBytes
}

// KVUse reports what the session holds now.
func (s *Session) KVUse() KVUse {
	seq, lists := s.text.Seq(), s.e.cache.KVHeads()
	u := KVUse{Bytes: seq.Bytes(), SketchBytes: s.text.SketchBytes(), StepMost: s.text.StepMost(), Swaps: s.revival.usage(), Repeats: s.repeats}
	held := 0
	for layer := range s.e.cache {
		for g := range s.e.cache[layer].KV.Heads {
			held += s.text.Held(layer, g)
		}
	}
	u.Tokens = float64(held) / float64(max(lists, 1)) // a model without attention holds none
	if n := s.text.Read(); n > 0 {
		u.Fraction, u.Droppable = u.Tokens/float64(n), s.droppable(int(n))
	}
	if tokens, reads := s.text.StepReads(); reads > 0 {
		u.TokensRead = float64(tokens) / float64(reads)
		kv, scanned := s.text.StepBytes()
		steps := float64(reads) / float64(s.e.cache.HeadsRead())
		u.StepKV, u.StepScanned = float64(kv)/steps, float64(scanned)/steps
	}
	return u
}

// droppable is KVUse.Droppable of n tokens.
func (s *Session) droppable(n int) float64 {
	layout, m := s.e.kv.Format(), policy.Model{Layers: s.e.cache}
	acting, rest := 0.0, float64(s.e.cache.StateBytes())
	for layer := range s.e.cache {
		kv := s.e.cache[layer].KV
		if kv.Heads == 0 {
			continue
		}
		each := float64(layout.Of(kv).PageBytes()) / float64(layout.Tokens) // a token and KV head
		if m.Acts(layer) {
			acting += each * float64(kv.Heads*n)
			continue
		}
		for g := range kv.Heads {
			rest += each * float64(s.text.Held(layer, g))
		}
	}
	if acting == 0 {
		return 0
	}
	return acting / (acting + rest)
}

// FLOPs counts floating-point operations.
type FLOPs = model.FLOPs

// FLOPs is what the session has asked of the backend since it was opened.
func (s *Session) FLOPs() FLOPs { return s.flops }

// attending counts what a pass asks of a layer: the pairs of its rows with what the layer holds, or with what was selected of
// it.
func attending(w *FLOPs, m *model.Model, layer int, seq *attention.Seq, kv *kvmanager.Sequence) {
	for g := range m.Layer[layer].KVHeads {
		if seq.Select != nil && seq.Select[g] != nil {
			w.Pairs(m, layer, m.Layer[layer].Group(), len(seq.Pos)*len(seq.Select[g]))
			continue
		}
		w.Attended(m, layer, seq.Pos, kv.PositionList(layer, g))
	}
}
