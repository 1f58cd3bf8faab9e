package model

import "fmt"

// Rows between layers are Hidden numbers in most models. Where layers are given something of the token itself a row carries its token's id
// behind them, so that whatever picks, keeps or drops rows needs to know nothing of it; with Streams or
// Copies a row is several copies of the residual.

// Streams is AltUp (arXiv 2301.13310) as in Gemma 3n: a row is Count copies of the residual, of which a layer works on one. Of the active copy s_a:
// m = tanh(Router·norm(s_a)/D); all copies are guessed, s'_i = s_i + Σ_j P_ij s_j with P = Predict·m; the layer makes y of s'_a; then
// s_i = s'_i + (1+c_i)(y − s'_a) with c = Correct·tanh(Router·norm(y)/D).
type Streams struct {
	Count  int // 0 = rows are one stream
	Active int
}

// StreamParams are a layer's weights of Streams.
type StreamParams struct {
	Router     *Linear // [Count, D]
	RouterNorm NormParams
	Predict    *Vector // [Count, Count, Count]: what is guessed, what it is made of, router
	Correct    *Vector // [Count, Count]: stream, router
	Scale      *Vector // [D] multiplies the active copy before per-layer inputs see it; absent = 1
}

// PerLayerParams are a layer's weights of its inputs (Gemma 3n and 4). Of a token with embedding x and row e of Params.PerLayerTable the input of layer i
// is p = (norm(Proj·x/√D) + √P·e_i)/√2; the layer adds norm(Up(act(Gate h) ⊙ p)) to its rows h, or to all streams but the first.
type PerLayerParams struct {
	Proj, Gate *Linear // [P, D]
	Up         *Linear // [D, P]
	Norm       NormParams
}

// LaurelParams is a residual of low rank beside attention (arXiv 2411.07501): z + norm(Up·Down·z) of the normed rows z joins what attention leaves, and the
// sum is divided by √2.
type LaurelParams struct {
	Down, Up *Linear // [rank, D], [D, rank]
	Norm     NormParams
}

// BesideParams are the norms of a layer whose feed-forward network stands beside its experts (Gemma 4): the network reads FFNNorm of the rows, the
// router RouterNorm, the experts ExpertNorm, and what network and experts give is normed before it is added.
type BesideParams struct{ RouterNorm, ExpertNorm, DensePost, ExpertPost NormParams }

// rowLinears are the weights of a layer that belong to what rows carry, and to LAuReL.
func (l *LayerParams) rowLinears() (all []*Linear) {
	if s := l.Streams; s != nil {
		all = append(all, s.Router)
	}
	if x := l.Laurel; x != nil {
		all = append(all, x.Down, x.Up)
	}
	if p := l.PerLayer; p != nil {
		all = append(all, p.Proj, p.Gate, p.Up)
	}
	return all
}

// RowWidth is how many numbers a row between layers is.
func (c *Config) RowWidth() int {
	width := c.Hidden * max(1, c.Streams.Count, c.Copies)
	if c.PerLayer > 0 || c.hasNGrams() {
		width++ // its token
	}
	return width
}

// wide reports whether a layer works on a part of a row. With Copies it works on a mixture of all.
func (c *Config) wide() bool { return c.PerLayer > 0 || c.Streams.Count > 0 }

// Limits that no real model reaches.
const (
	maxStreams  = 16
	maxPerLayer = 1 << 14
)

// validateRows checks what rows carry beside the residual.
func (c *Config) validateRows() error {
	s := &c.Streams
	switch {
	case c.PerLayer < 0 || c.PerLayer > maxPerLayer:
		return fmt.Errorf("model: embedding_length_per_layer_input is %d, want 0 to %d: %w", c.PerLayer, maxPerLayer, ErrConfig)
	case s.Count < 0 || s.Count == 1 || s.Count > maxStreams:
		return fmt.Errorf("model: altup.num_inputs is %d, want 0 or 2 to %d: %w", s.Count, maxStreams, ErrConfig)
	case s.Active < 0 || s.Active >= max(1, s.Count):
		return fmt.Errorf("model: altup.active_idx is %d of %d streams: %w", s.Active, s.Count, ErrConfig)
	case !c.wide():
		return nil
	case c.Parallel || c.PostNorm || !c.Gated || gates[c.Act] == nil:
		return fmt.Errorf("model: per-layer inputs or streams in blocks of another form: %w", ErrConfig)
	case c.Copies > 0:
		return fmt.Errorf("model: per-layer inputs or streams in rows of copies that hyper-connections read: %w", ErrConfig)
	}
	for i := range c.Layer {
		if c.Layer[i].Recurs() {
			return fmt.Errorf("model: layer %d has a recurrent mixer on rows with per-layer inputs or streams: %w", i, ErrConfig)
		}
	}
	return nil
}
