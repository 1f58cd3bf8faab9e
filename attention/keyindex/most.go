package keyindex

import (
	"math/bits"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/policy"
)

// Size is what the index of one layer and KV head takes at most, once it holds a number of tokens.
type Size struct {
	Bytes int64 // in host memory, as [Index.Bytes] counts
	Below int64 // handed to a stream, without rows of zeros
	Tile  int   // bytes of the largest tile handed to a stream
}

// MostSize is the size for keys of dim numbers in an element type. stored says that what is full goes to a stream.
func MostSize(need policy.Sketch, dim, tokens int, stored bool, keys kvpage.Elem) (s Size) {
	if need.Listed == policy.ListedInt4 {
		s.Bytes += appended(tokens*((dim+1)/2+8), kernels.PanelCols*dim)
	}
	switch need.Kind {
	case policy.SketchBounds:
		for _, block := range need.Blocks {
			columns := (tokens + block - 1) / block
			s.columns(kvpage.F16, dim, columns, stored)
			s.columns(kvpage.F16, dim, columns, stored)
		}
	case policy.SketchInt8:
		s.codes(kvpage.I8, &need, dim, tokens)
	case policy.SketchInt4:
		s.codes(kvpage.I4, &need, codedDim(&need, dim), tokens)
	case policy.SketchHalf:
		s.columns(kvpage.F16, dim, tokens, stored)
	case policy.SketchProjected:
		s.columns(kvpage.F16, need.Rank, tokens, stored)
	case policy.SketchExact, policy.SketchDims:
		if stored {
			s.columns(keys, dim, tokens, true)
		}
	case policy.SketchClusters:
		s.clusters(&need.Clusters, dim, tokens)
	case policy.SketchHashes:
		s.hashes(&need, dim, tokens)
	case policy.SketchProduct:
		s.product(&need, dim, tokens, stored)
	}
	return s
}

// MostJoint is what all KV heads of a layer have together, in bytes.
func MostJoint(need policy.Sketch, kvHeads, dim, tokens int, keys kvpage.Elem) int64 {
	if need.Kind == policy.SketchIndex {
		var s Size
		s.columns(indexElem(keys), need.Rank, tokens/max(need.IndexBlock, 1), false)
		return s.Bytes
	}
	if need.Kind != policy.SketchJoint {
		return 0
	}
	elem := kvpage.F16
	if keys == kvpage.F32 {
		elem = kvpage.F32
	}
	s := Size{Bytes: int64(4 * need.Rank * kvHeads * dim)}
	s.columns(elem, need.Rank, tokens, false)
	return s.Bytes
}

// clusters adds a Clusters: every cluster has a token.
func (s *Size) clusters(need *policy.ClusterSketch, dim, tokens int) {
	row, least := dim+need.ValueDim, 8/float64(need.Update) // clusters a token: of generated text at least 8 a time
	rate := max(1/float64(need.Size), least)
	groups := min(int(float64(tokens)*rate)+4+8*(tokens/max(need.Segment, 1)), tokens)
	s.Bytes += int64(4*groups*(row+1) + tokens*memberBytes(groups))
}

// hashes adds a Hashes.
func (s *Size) hashes(need *policy.Sketch, dim, tokens int) {
	x := NewHashes(dim, need.Bits, need.Rank/need.Bits)
	s.Bytes += 4 * (int64((x.panelCount()*kernels.PanelCols+1)*dim+x.tables<<x.bits) + appended(tokens*x.tables, kernels.PanelCols*x.tables) + appended(tokens, kernels.PanelCols))
}

// product adds a Product.
func (s *Size) product(need *policy.Sketch, dim, tokens int, stored bool) {
	tile, tiles := codeBytes(need.Parts, need.Bits)*kvpage.Tile, (tokens+kvpage.Tile-1)/kvpage.Tile
	s.Bytes += int64(4*dim+4*need.Parts)<<need.Bits + int64(4*need.First*dim)
	if need.Balanced {
		s.Bytes += int64(4 * dim)
	}
	if need.ValueParts > 0 {
		s.Bytes += int64(4*need.ValueDim+4*need.ValueParts)<<need.Bits + int64(tiles*codeBytes(need.ValueParts, need.Bits)*kvpage.Tile)
	}
	if !stored {
		s.Bytes += int64(tiles * tile)
		return
	}
	s.Bytes += int64(tile) + 4*appended(tiles, 1)
	s.Below += int64(max(tiles-1, 0) * tile)
	s.Tile = max(s.Tile, tile)
}

// columns adds a Columns.
func (s *Size) columns(elem kvpage.Elem, rows, n int, stored bool) {
	c := NewColumns(elem, rows)
	tiles := (n + tileColumns - 1) / tileColumns
	if !stored {
		s.Bytes += int64(tiles) * int64(c.layout.KTileBytes())
		return
	}
	s.Bytes += int64(c.layout.KTileBytes()) + 4*appended(tiles, 1)
	s.Below += int64(max(tiles-1, 0)) * int64(c.storedBytes())
	s.Tile = max(s.Tile, c.layout.KTileBytes())
}

// codes adds a Codes, whose last chunk may be twice as long as it must be.
func (s *Size) codes(elem kvpage.Elem, need *policy.Sketch, dim, tokens int) {
	tile := int64(kvpage.CodeTileBytes(elem, dim))
	tiles, last := tokens/ChunkTokens*(ChunkTokens/kvpage.Tile), (tokens%ChunkTokens+kvpage.Tile-1)/kvpage.Tile
	if last > 0 { // it grows by doubling
		tiles += 1 << bits.Len(uint(last-1))
	}
	s.Bytes += int64(tiles) * tile
	switch need.Scale {
	case policy.ScaleToken:
		s.Bytes += 4 * appended(tokens, kernels.PanelCols)
	case policy.ScaleChannel:
		s.Bytes += 4 * int64(dim)
	default:
		s.Bytes += 4
	}
}

// appended is the capacity of a slice that n elements were appended to, some at a time, at most: what append adds (twice up
// to 256 elements, then a quarter and 192), and a size class.
func appended(n, step int) int64 {
	n += step
	return int64(max(min(2*n, n+n/4+512)*9/8, 64))
}
