package attend

import (
	"slices"

	"terrace/csdshim"
	"terrace/csdshim/flash"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/policy"
)

// scorer answers policy sparf's question for the products of a few dimensions: from columns of the embedding copy, and where
// tokens have none yet from their keys.
type scorer struct {
	policy.Scorer // nothing else is asked for
	task          *headTask
	err           error

	embedded int    // tokens that have columns
	columns  []byte // [dims][embedded]
	keys     []byte // [tokens without columns][KeyDim], where has is set
	values   []byte // of the same tokens, where keys and values share pages
	has      bool   // these keys are at hand
	tiles    []byte
	list     [][]byte
	masks    []uint16
	few, out []float32
}

func (s *scorer) reset() { s.has, s.err = false, nil }

// Dims implements policy.Scorer: steps 2 and 3 of the algorithm, and the products of step 4.
func (s *scorer) Dims(_ int, dims []int32, q []float32, rows int, dst []float32) {
	t := s.task
	if s.err = s.read(dims); s.err != nil {
		clear(dst)
		return
	}
	few := (len(dims) + 15) &^ 15 // what the host's kernels take; a dimension more is zero in the query
	s.tile(dims, few)
	s.few = slices.Grow(s.few[:0], rows*few)[:rows*few]
	clear(s.few)
	for r := range rows {
		for i, d := range dims {
			s.few[r*few+i] = q[r*t.shape.KeyDim+int(d)]
		}
	}
	width := len(s.list) * kvpage.Tile
	s.out = slices.Grow(s.out[:0], kernels.GroupHeads*(width+few))[:kernels.GroupHeads*(width+few)]
	for h := 0; h < rows; h += kernels.GroupHeads {
		m := min(kernels.GroupHeads, rows-h)
		out, turned := s.out[:m*width], s.out[m*width:m*(width+few)]
		kernels.PackQuery(turned, s.few[h*few:(h+m)*few], m, few, 1)
		kernels.ScoreTiles(kernels.KVElem(t.shape.Elem), out, turned, s.list, s.masks, m, few)
		for i := range m {
			copy(dst[(h+i)*t.n:][:t.n], out[i*width:])
		}
	}
	t.r.Scored(t.head, t.n, t.n*len(dims))
}

// read reads the columns of the chosen dimensions, and the keys of the tokens behind them.
func (s *scorer) read(dims []int32) error {
	t := s.task
	s.embedded = t.r.Embedded()
	size := len(dims) * s.embedded * t.shape.ElemBytes
	s.columns = slices.Grow(s.columns[:0], size)[:size]
	if s.embedded > 0 {
		if err := t.r.Read(csdshim.ReadToScore, t.head, flash.KVEmbeddings, dims, s.columns, true); err != nil {
			return err
		}
	}
	rest := t.e.pos[s.embedded:t.n]
	size = len(rest) * t.shape.KeyRowBytes()
	s.keys, s.has = slices.Grow(s.keys[:0], size)[:size], true
	if !t.shape.Paired {
		return t.r.Read(csdshim.ReadToScore, t.head, flash.KVKeys, rest, s.keys, false)
	}
	size = len(rest) * t.shape.ValueRowBytes() // they lie on the same pages
	s.values = slices.Grow(s.values[:0], size)[:size]
	return t.r.ReadPairs(csdshim.ReadToScore, t.head, rest, s.keys, s.values, false)
}

// tile lays what was read in tiles of 16 tokens, dimension by dimension.
func (s *scorer) tile(dims []int32, few int) {
	t, e := s.task, s.task.shape.ElemBytes
	row := kvpage.Tile * e
	size, count := few*row, (t.n+kvpage.Tile-1)/kvpage.Tile
	s.tiles = slices.Grow(s.tiles[:0], count*size)[:count*size]
	clear(s.tiles)
	s.list, s.masks = s.list[:0], s.masks[:0]
	for i := range count {
		tile, first := s.tiles[i*size:(i+1)*size:(i+1)*size], i*kvpage.Tile
		n := min(kvpage.Tile, t.n-first)
		for j, d := range dims {
			to := tile[j*row : (j+1)*row]
			if first < s.embedded {
				copy(to[:n*e], s.columns[(j*s.embedded+first)*e:])
				continue
			}
			for k := range n {
				copy(to[k*e:(k+1)*e], s.keys[((first+k-s.embedded)*t.shape.KeyDim+int(d))*e:])
			}
		}
		s.list, s.masks = append(s.list, tile), append(s.masks, uint16(1<<n-1))
	}
}
