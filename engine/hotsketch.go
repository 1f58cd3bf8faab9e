package engine

import (
	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/offload"
	"terrace/policy"
)

// sketchHot brings the sketches of a layer's hot tokens in line with the cache: tokens that are new there are added under
// their slots, if they are hot. The scales are those of the whole prompt.
func (r *policyRun) sketchHot(st *layerState, views []attention.View, l *policy.Layer, hot *hotTokens) {
	if st.scorer == nil {
		st.scorer = newScorer(r.needs.Sketch, r.m.KVHeads, r.m.KeyDim)
		for g := range st.scorer.heads {
			st.scorer.heads[g].hot = hot
		}
	}
	r.task = headTask{st: st, views: views, layer: l}
	r.spread(len(views), r.refreshHead)
}

// refreshHot is refresh of a head that holds keys of hot tokens only.
func (h *headScorer) refreshHot(pos []int32, l *policy.Layer, kvHead int) {
	n := len(pos)
	if h.tokens == 0 {
		h.start(n, l, kvHead, nil)
	}
	if cap(h.keys) < kernels.PanelCols*h.dim {
		h.keys, h.codes = make([]float32, kernels.PanelCols*h.dim), make([]int8, h.dim)
	}
	for i := h.tokens; i < n; {
		m := 0
		for i+m < n && m < kernels.PanelCols && h.hot.slot(i+m) >= 0 {
			m++
		}
		if m == 0 {
			i++
			continue
		}
		keys := h.keys[:m*h.dim]
		h.reader.Keys(h.view, i, i+m, keys)
		for j := range m {
			h.addKey(int(h.hot.slot(i+j)), keys[j*h.dim:(j+1)*h.dim])
		}
		i += m
	}
	h.tokens = n
}

// sketchGathered adds tokens that turned hot, from records that hold nothing else.
func (r *policyRun) sketchGathered(st *layerState, hot *hotTokens, tokens []int32, data []byte, s offload.Shape) {
	key := make([]float32, r.m.KeyDim)
	for i, token := range tokens {
		record := data[i/kvpage.Tile*s.RecordBytes():][:s.RecordBytes()]
		for g := range st.scorer.heads {
			kvpage.ReadK(s.Page, record[g*s.HeadBytes():(g+1)*s.HeadBytes()], i%kvpage.Tile, key)
			st.scorer.heads[g].addKey(int(hot.slot(int(token))), key)
		}
	}
}

// scales are those of integer keys that tokens share: one a KV head, or one a number; none where there are none.
func (s *scorer) scales() (all []float32) {
	for i := range s.heads {
		all = append(all, s.heads[i].scale...)
	}
	return all
}

// blockTokens is the number of tokens of what a tier stores as one.
func (s *Session) blockTokens() int { return s.e.kv.Layout().Tokens }

var _ kvmanager.Gatherer = (*tiers)(nil)
