package engine

import (
	"terrace/attention"
	"terrace/attention/keyindex"
	"terrace/kvmanager"
	"terrace/policy"
)

// sketchHot brings the sketches of a layer's hot tokens in line with the cache: tokens that are new there are added under
// their slots, if they are hot. The scales are those of the whole prompt.
func (r *policyRun) sketchHot(st *layerState, views []attention.View, l *policy.Layer, hot *hotTokens) {
	if st.index == nil {
		st.index = keyindex.New(r.needs.Sketch, r.m.KVHeads, r.m.KeyDim)
		st.index.HoldSlots(hot)
	}
	r.task = headTask{st: st, views: views, layer: l}
	r.pool.Run(len(views), r.refreshHead)
}

// blockTokens is the number of tokens of what a tier stores as one.
func (s *Session) blockTokens() int { return s.e.kv.Layout().Tokens }

var _ kvmanager.Gatherer = (*tiers)(nil)
