package engine

import (
	"maps"
	"time"
)

// TierUse is what the tiers have held and moved since the engine was opened, measured.
type TierUse struct {
	PeakBytes  map[string]int64 // by tier
	MovedBytes map[string]int64 // by "from>to"
	HitRate    *float64         // part of the tokens that passes read that was in host memory; nil without a lower tier
	Reads      int64            // operations of the lower tier's device
	Notice     string           // what the host could not give, or empty
	Scored     ScoreUse         // where a drive scores
	Balance    *BalanceUse      // how host and drive divide the tokens now; nil where nothing is divided
	Replays    int64            // times that texts were read again because the lower tier had lost KV

	TokensRead, TokensFetched int64         // a layer and KV head, asked for by passes; and of them those that were not in host memory
	ReadBytes                 int64         // from the lower tier
	ReadBusy                  time.Duration // at least one read of the lower tier under way
	Stall                     time.Duration // passes stood still for the lower tier

	Compute, Up, Down time.Duration // of the backend's device: programs, transfers from and to host memory
}

// TierUse reports the tiers' accounts.
func (e *Engine) TierUse() TierUse {
	kv := e.kv.Stats()
	u := TierUse{PeakBytes: map[string]int64{string(TierHost): kv.PeakBytes}, MovedBytes: map[string]int64{}}
	if e.keeper != nil {
		d := e.keeper.DeviceUse()
		u.PeakBytes[string(TierDevice)] = d.KVPeakBytes
		u.MovedBytes["host>device"], u.MovedBytes["device>host"] = d.UpBytes, d.DownBytes
		u.Compute, u.Up, u.Down = d.Compute, d.Up, d.Down
	}
	if e.tiers == nil {
		return u
	}
	st, queue, name := e.tiers.store.Stats(), e.tiers.queue.Stats(), e.tiers.store.Name()
	u.PeakBytes[name] = st.PeakBytes
	u.MovedBytes[string(TierHost)+">"+name], u.MovedBytes[name+">"+string(TierHost)] = st.WrittenBytes, st.ReadBytes
	u.Reads, u.Notice = st.Reads, st.Notice
	u.ReadBytes, u.ReadBusy, u.Stall = st.ReadBytes, queue.Busy[0], queue.Stall
	u.Scored, u.Balance, u.Replays = e.scoreUse, e.balance, e.replays
	u.Scored.Again = st.Retries
	u.TokensRead, u.TokensFetched = kv.TokensRead, kv.TokensFetched
	u.rate()
	return u
}

// rate works HitRate out.
func (u *TierUse) rate() {
	u.HitRate = nil
	if u.TokensRead > 0 {
		rate := 1 - float64(u.TokensFetched)/float64(u.TokensRead)
		u.HitRate = &rate
	}
}

// since is what was used after an earlier report of the same engine; peaks are as they are.
func (u TierUse) since(before TierUse) TierUse { return u.sum(before, -1) }

// plus adds another report of the same engine's; peaks are the later one's.
func (u TierUse) plus(more TierUse) TierUse {
	out := u.sum(more, 1)
	out.PeakBytes, out.Notice, out.Balance = more.PeakBytes, more.Notice, more.Balance
	return out
}

func (u TierUse) sum(x TierUse, sign int64) TierUse {
	u.MovedBytes = maps.Clone(u.MovedBytes)
	if u.MovedBytes == nil {
		u.MovedBytes = map[string]int64{}
	}
	for k, n := range x.MovedBytes {
		u.MovedBytes[k] += sign * n
	}
	u.Reads += sign * x.Reads
	u.TokensRead += sign * x.TokensRead
	u.TokensFetched += sign * x.TokensFetched
	u.ReadBytes += sign * x.ReadBytes
	u.ReadBusy += time.Duration(sign) * x.ReadBusy
	u.Stall += time.Duration(sign) * x.Stall
	u.Compute += time.Duration(sign) * x.Compute
	u.Up += time.Duration(sign) * x.Up
	u.Down += time.Duration(sign) * x.Down
	u.rate()
	return u
}
