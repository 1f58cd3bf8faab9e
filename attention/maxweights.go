package attention

import "terrace/internal/kernels"

// Repetition is rows of a sequence whose attention is looked at as if only some columns were there (KVzip's reconstruction
// scores): the first Sinks tokens of the view, the tokens From to To-1, and those from Own on, causally.
type Repetition struct {
	Q        []float32 // [n, Heads·KeyDim]
	Pos      []int32   // [n]
	Sinks    int       // tokens, at most From
	From, To int
	Own      int       // first token of the repetition
	OwnPos   []int32   // positions of the tokens from Own on
	RowScale []float32 // [n] times which a row's weights count; nil = 1
	Sum      bool      // the sum over rows is taken and not the largest
}

// repeatRows is how many rows are scored at a time.
const repeatRows = 32

// MaxWeights raises dst[h] [To-From], for every head of KV head g, to the largest softmax weight that a row of the repetition
// gives each token of the range, or adds all of them. It computes in float32; a row's weights depend on that row alone.
func MaxWeights(pool *kernels.Pool, p Params, view *View, g int, r Repetition, dst [][]float32) {
	group := p.Heads / p.KVHeads
	panels := repeatPanels(view, p.KeyDim, r)
	width := r.Sinks + r.To - r.From + len(r.OwnPos)
	pool.Run(group, func(_, h int) {
		head, stride := g*group+h, len(panels)*kernels.PanelCols
		s := make([]float32, repeatRows*stride)
		for first := 0; first < len(r.Pos); first += repeatRows {
			n := min(repeatRows, len(r.Pos)-first)
			q := r.Q[first*p.Heads*p.KeyDim+head*p.KeyDim:]
			for i, panel := range panels {
				kernels.Gemm(s[i*kernels.PanelCols:], stride, q, p.Heads*p.KeyDim, panel, p.KeyDim, n, nil)
			}
			for i := range n {
				row, seen := s[i*stride:i*stride+width], r.Sinks+r.To-r.From
				for seen < width && r.OwnPos[seen-(r.Sinks+r.To-r.From)] <= r.Pos[first+i] {
					seen++
				}
				r.raise(dst[head], row[:seen], first+i, head, p)
			}
		}
	})
}

// raise takes a row of raw products into the largest weights, or the sums.
func (r *Repetition) raise(dst, row []float32, i, head int, p Params) {
	kernels.Scale(row, p.Scale)
	if p.Softcap > 0 {
		kernels.Softcap(row, p.Softcap)
	}
	p.Softmax(row, head)
	scale := float32(1)
	if r.RowScale != nil {
		scale = r.RowScale[i]
	}
	row = row[r.Sinks:][:len(dst)]
	if r.Sum {
		kernels.Axpy(dst, scale, row)
		return
	}
	for j, w := range row {
		dst[j] = max(dst[j], w*scale)
	}
}

// repeatPanels are the columns' keys, [KeyDim][64] each.
func repeatPanels(view *View, dim int, r Repetition) [][]float32 {
	var reader Reader
	all := r.Sinks + r.To - r.From + len(r.OwnPos)
	keys := make([]float32, all*dim)
	reader.Keys(view, 0, r.Sinks, keys)
	reader.Keys(view, r.From, r.To, keys[r.Sinks*dim:])
	reader.Keys(view, r.Own, r.Own+len(r.OwnPos), keys[(r.Sinks+r.To-r.From)*dim:])
	var panels [][]float32
	for at := 0; at < all; at += kernels.PanelCols {
		panel := make([]float32, dim*kernels.PanelCols)
		for j := range min(kernels.PanelCols, all-at) {
			for d, x := range keys[(at+j)*dim:][:dim] {
				panel[d*kernels.PanelCols+j] = x
			}
		}
		panels = append(panels, panel)
	}
	return panels
}
