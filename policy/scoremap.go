package policy

import (
	"fmt"
	"math"
	"slices"

	"terrace/internal/kernels"
)

// ScoreMap scores tokens by the rows that the layers' attention projects from, a map a layer, trained for one model. It is not changed once
// it is made; calls may run at the same time.
type ScoreMap struct {
	Layers []ScoreLayer
}

// ScoreLayer is a layer's map from a row [In] to a score a KV head [Out]: Out·gelu(Hidden·x + HiddenBias) + OutBias, or Out·x + OutBias
// where Hidden is nil, gelu in its exact form (KVzap); or the gate, where there is one.
type ScoreLayer struct {
	In, Heads          int
	Hidden, HiddenBias []float32 // [width, In], [width]
	Out, OutBias       []float32 // [Heads, width or In], [Heads]
	Gate               *ScoreGate
}

// ScoreGate is Fast KVzip's: of each KV head the part, mean over the group, that its own key takes of attention beside base keys, all of few
// dimensions: 1/(1 + Σ_s exp(q·base_s/√dim − q·k/√dim − b)), q and k normed (RMS, eps 1e-6) projections of the row.
type ScoreGate struct {
	Group, Dim, Base       int
	Query, QueryBias, Key  []float32 // [Heads·Group·Dim, In], [Heads·Group·Dim], [Heads·Dim, In]
	QueryNorm, KeyNorm     []float32 // [Dim]
	BaseKeys, BiasOfGroups []float32 // [Heads, Base, Dim], [Heads, Group]
}

// Score fills dst [Heads] with the scores of a row x [In]; scratch is reused.
func (s *ScoreLayer) Score(x, dst []float32, scratch *[]float32) {
	if s.Gate != nil {
		s.Gate.score(x, dst, scratch)
		return
	}
	if s.Hidden != nil {
		*scratch = sized(*scratch, len(s.HiddenBias))
		timesRow(*scratch, s.Hidden, x)
		kernels.Add(*scratch, s.HiddenBias)
		kernels.GeluErf(*scratch)
		x = *scratch
	}
	timesRow(dst, s.Out, x)
	kernels.Add(dst, s.OutBias)
}

// timesRow fills dst with w [len(dst), len(x)] times x.
func timesRow(dst, w, x []float32) {
	for i := range dst {
		dst[i] = kernels.Dot(w[i*len(x):(i+1)*len(x)], x)
	}
}

func (g *ScoreGate) score(x, dst []float32, scratch *[]float32) {
	queries, keys := len(g.QueryBias), len(dst)*g.Dim
	*scratch = sized(*scratch, queries+keys)
	q, k := (*scratch)[:queries], (*scratch)[queries:]
	timesRow(q, g.Query, x)
	kernels.Add(q, g.QueryBias)
	timesRow(k, g.Key, x)
	const eps = 1e-6
	root := math.Sqrt(float64(g.Dim))
	for h := range dst {
		key := k[h*g.Dim : (h+1)*g.Dim]
		kernels.RMSNorm(key, key, g.KeyNorm, eps)
		sum := 0.0
		for i := h * g.Group; i < (h+1)*g.Group; i++ {
			query := q[i*g.Dim : (i+1)*g.Dim]
			kernels.RMSNorm(query, query, g.QueryNorm, eps)
			own, others := float64(kernels.Dot(query, key))/root+float64(g.BiasOfGroups[i]), 1.0
			for s := h * g.Base; s < (h+1)*g.Base; s++ {
				others += math.Exp(float64(kernels.Dot(query, g.BaseKeys[s*g.Dim:(s+1)*g.Dim]))/root - own)
			}
			sum += 1 / others
		}
		dst[h] = float32(sum / float64(g.Group))
	}
}

// check refuses a map of another model, and one of which numbers are missing.
func (m *ScoreMap) check(file string, of Model) error {
	if len(m.Layers) != len(of.Layers) {
		return fmt.Errorf("policy: kvzap: %s has maps of %d layers, the model has %d: %w", file, len(m.Layers), len(of.Layers), ErrModel)
	}
	for i := range m.Layers {
		s := &m.Layers[i]
		if heads := of.Layers[i].KV.Heads; of.Acts(i) && (s.In != of.Hidden || s.Heads != heads) {
			return fmt.Errorf("policy: kvzap: %s has a map of %d numbers to %d KV heads in layer %d, want %d to %d: %w", file, s.In, s.Heads, i, of.Hidden, heads, ErrModel)
		}
	}
	return nil
}

// evenMap is a matrix a layer all of whose numbers are value.
func evenMap(m Model, value float32) *ScoreMap {
	most := 0
	for i := range m.Layers {
		most = max(most, m.Layers[i].KV.Heads)
	}
	weights, bias, out := slices.Repeat([]float32{value}, most*m.Hidden), make([]float32, most), &ScoreMap{}
	for i := range m.Layers {
		heads := m.Layers[i].KV.Heads
		out.Layers = append(out.Layers, ScoreLayer{In: m.Hidden, Heads: heads, Out: weights[:heads*m.Hidden], OutBias: bias[:heads]})
	}
	return out
}
