package engine

// TierUse is what the tiers have held and moved since the engine was opened, measured.
type TierUse struct {
	PeakBytes  map[string]int64 // by tier
	MovedBytes map[string]int64 // by "from>to"
	HitRate    *float64         // part of what passes read that was in host memory; nil without a lower tier
	Reads      int64            // operations of the lower tier's device
	Notice     string           // what the host could not give, or empty
}

// TierUse reports the tiers' accounts.
func (e *Engine) TierUse() TierUse {
	kv := e.kv.Stats()
	u := TierUse{PeakBytes: map[string]int64{string(TierHost): kv.PeakBytes}, MovedBytes: map[string]int64{}}
	if e.keeper != nil {
		d := e.keeper.DeviceUse()
		u.PeakBytes[string(TierDevice)] = d.KVPeakBytes
		u.MovedBytes["host>device"], u.MovedBytes["device>host"] = d.UpBytes, d.DownBytes
	}
	if e.tiers == nil {
		return u
	}
	st, name := e.tiers.store.Stats(), e.tiers.store.Name()
	u.PeakBytes[name] = st.PeakBytes
	u.MovedBytes[string(TierHost)+">"+name], u.MovedBytes[name+">"+string(TierHost)] = st.WrittenBytes, st.ReadBytes
	u.Reads, u.Notice = st.Reads, st.Notice
	if kv.BlocksRead > 0 {
		rate := 1 - float64(kv.BlocksFetched)/float64(kv.BlocksRead)
		u.HitRate = &rate
	}
	return u
}
