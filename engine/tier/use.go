package tier

import (
	"maps"
	"time"

	"terrace/engine/xcache"
	"terrace/retrieval"
)

// Use is what the tiers have held and moved since the engine was opened, measured.
type Use struct {
	PeakBytes  map[string]int64      // by tier
	MovedBytes map[string]int64      // by "from>to"
	HitRate    *float64              // part of the tokens that passes read that was in host memory; nil without a lower tier
	Reads      int64                 // operations of the lower tier's device
	Paced      bool                  // by a drive that waits as a profile says: times on the wall are modelled
	Notice     string                // what the host could not give, or empty
	Scored     retrieval.ScoreUse    // where a drive scores
	Balance    *retrieval.BalanceUse // how host and drive divide the tokens now; nil where nothing is divided
	Pools      retrieval.PoolUse     // where a policy's pools decide what is hot
	Reuse      retrieval.ReuseUse    // where a policy reads groups of tokens
	XCache     xcache.Use            // where layers' rows lie below instead of keys and values
	Drives     []retrieval.DriveUse  // that attend, in the order of the tiers; over the engine's life
	Replays    int64                 // times that texts were read again because the lower tier had lost KV

	TokensRead, TokensFetched int64         // a layer and KV head, asked for by passes; and of them those that were not in host memory
	ReadBytes                 int64         // from the lower tier
	ReadBusy                  time.Duration // at least one read of the lower tier under way
	Stall                     time.Duration // passes stood still for the lower tier
	ScoreWait                 time.Duration // and for a drive's scores

	Compute, Up, Down time.Duration // of the backend's device: programs, transfers from and to host memory
}

// Rate works HitRate out.
func (u *Use) Rate() {
	u.HitRate = nil
	if u.TokensRead > 0 {
		rate := 1 - float64(u.TokensFetched)/float64(u.TokensRead)
		u.HitRate = &rate
	}
}

// Since is what was used after an earlier report of the same engine; peaks are as they are.
func (u Use) Since(before Use) Use { return u.sum(before, -1) }

// Plus adds another report of the same engine's; peaks are the later one's.
func (u Use) Plus(more Use) Use {
	out := u.sum(more, 1)
	out.PeakBytes, out.Paced, out.Notice, out.Balance, out.Drives = more.PeakBytes, more.Paced, more.Notice, more.Balance, more.Drives
	return out
}

func (u Use) sum(x Use, sign int64) Use {
	u.MovedBytes = maps.Clone(u.MovedBytes)
	if u.MovedBytes == nil {
		u.MovedBytes = map[string]int64{}
	}
	for k, n := range x.MovedBytes {
		u.MovedBytes[k] += sign * n
	}
	if u.Pools = u.Pools.Plus(x.Pools); sign < 0 {
		u.Pools = u.Pools.Minus(x.Pools).Minus(x.Pools)
	}
	if u.Reuse = u.Reuse.Plus(x.Reuse); sign < 0 {
		u.Reuse = u.Reuse.Minus(x.Reuse).Minus(x.Reuse)
	}
	u.XCache = u.XCache.Plus(x.XCache, sign)
	u.Reads += sign * x.Reads
	u.TokensRead += sign * x.TokensRead
	u.TokensFetched += sign * x.TokensFetched
	u.ReadBytes += sign * x.ReadBytes
	u.ReadBusy += time.Duration(sign) * x.ReadBusy
	u.Stall += time.Duration(sign) * x.Stall
	u.ScoreWait += time.Duration(sign) * x.ScoreWait
	u.Compute += time.Duration(sign) * x.Compute
	u.Up += time.Duration(sign) * x.Up
	u.Down += time.Duration(sign) * x.Down
	u.Rate()
	return u
}

// Place is a tier as it is now: what lies there.
type Place struct {
	Name          string
	HeldBytes     int64 // KV in use, and what a policy scans beside it
	PeakBytes     int64 // most at a time since the engine was opened
	CapacityBytes int64 // 0 = no limit
}
