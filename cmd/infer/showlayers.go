package main

import (
	"fmt"

	"terrace/internal/units"
	"terrace/model"
)

// layerInfo is what show --json says of a layer.
type layerInfo struct {
	Kind            string `json:"kind"`
	Heads           int    `json:"heads,omitempty"`
	KVHeads         int    `json:"kv_heads,omitempty"`
	KeyWidth        int    `json:"key_width,omitempty"`
	ValueWidth      int    `json:"value_width,omitempty"`
	Window          int    `json:"window,omitempty"`
	StateBytes      int    `json:"state_bytes,omitempty"`
	KVBytesPerToken int    `json:"kv_bytes_per_token"` // in f16; 0 where it keeps none of its own
	KVFrom          *int   `json:"kv_from,omitempty"`  // the layer whose keys and values it reads; absent = its own, or none
}

// layersOf describes a model's layers.
func layersOf(m *model.Model) []layerInfo {
	cache, out := m.Cache(), make([]layerInfo, m.Layers)
	for i := range out {
		l := &m.Layer[i]
		x := layerInfo{Kind: l.Kind(), Heads: l.Heads, StateBytes: cache[i].State.Bytes, KVBytesPerToken: 2 * cache[i].KV.Numbers()}
		if l.Heads > 0 {
			x.KVHeads, x.KeyWidth, x.ValueWidth, x.Window = l.KVHeads, l.KeyDim, l.ValDim, l.Window
			if owner := cache.Owner(i); owner != i {
				x.KVFrom = &owner
			}
		}
		out[i] = x
	}
	return out
}

// layerKind is layers that are alike but for their windows, as show says it.
type layerKind struct {
	text  string
	count int
}

// layerKinds counts what layers there are, in the order of the first of each.
func layerKinds(layers []layerInfo) (kinds []layerKind) {
	at := map[string]int{}
	for _, l := range layers {
		text := l.text()
		if _, known := at[text]; !known {
			at[text] = len(kinds)
			kinds = append(kinds, layerKind{text: text})
		}
		kinds[at[text]].count++
	}
	return kinds
}

func (l *layerInfo) text() string {
	text := ""
	switch {
	case l.Kind == "attention" && l.KeyWidth == l.ValueWidth:
		text = fmt.Sprintf("%d heads, %d KV heads of %d", l.Heads, l.KVHeads, l.KeyWidth)
	case l.Heads > 0:
		text = fmt.Sprintf("%s, %d heads, %d KV heads of %d and %d", l.Kind, l.Heads, l.KVHeads, l.KeyWidth, l.ValueWidth)
	default:
		text = l.Kind
	}
	if l.KVFrom != nil {
		text += ", reading an earlier layer's"
	}
	if l.StateBytes > 0 {
		text += fmt.Sprintf(", %s of state", units.FormatBytes(int64(l.StateBytes)))
	}
	return text
}
