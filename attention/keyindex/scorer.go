package keyindex

import "terrace/policy"

// Dot implements policy.Scorer.
func (x *Index) Dot(kvHead int, q []float32, rows int, dst []float32) {
	x.heads[kvHead].Dot(0, q, rows, dst)
}

// Dims implements policy.Scorer.
func (x *Index) Dims(kvHead int, dims []int32, q []float32, rows int, dst []float32) {
	x.heads[kvHead].Dims(0, dims, q, rows, dst)
}

// Bounds implements policy.Scorer.
func (x *Index) Bounds(kvHead, block int, only []int32, q []float32, rows int, dst []float32) {
	x.heads[kvHead].Bounds(0, block, only, q, rows, dst)
}

// SideDims implements policy.Scorer.
func (x *Index) SideDims(kvHead, block int, dims []int32, low []bool, q []float32, rows int, dst []float32) {
	x.heads[kvHead].SideDims(0, block, dims, low, q, rows, dst)
}

// Approx implements policy.Scorer.
func (x *Index) Approx(kvHead int, q []float32, rows int, dst []float32) {
	if x.joint != nil {
		x.readBytes += x.joint.columns.scanBytes(x.joint.rank)
		x.joint.columns.Score(dst, q, rows)
		return
	}
	if x.indexed != nil {
		x.readBytes += x.indexed.columns.scanBytes(x.indexed.dim)
		x.indexed.columns.Score(dst, q, rows)
		return
	}
	x.heads[kvHead].Approx(0, q, rows, dst)
}

// Listed implements policy.Scorer.
func (x *Index) Listed(kvHead int, tokens []int32, q []float32, rows int, dst []float32) {
	x.heads[kvHead].Listed(0, tokens, q, rows, dst)
}

// Clusters implements policy.Scorer.
func (x *Index) Clusters(kvHead int) *policy.Clusters { return x.heads[kvHead].Clusters(0) }

// Trained implements policy.Scorer.
func (x *Index) Trained(kvHead int) bool { return x.heads[kvHead].Trained(0) }

// KeyScales implements policy.Scorer.
func (x *Index) KeyScales(kvHead int, dst []float32) { x.heads[kvHead].KeyScales(0, dst) }

// Products implements policy.Scorer.
func (x *Index) Products(kvHead int, q []int8, dst []int32) { x.heads[kvHead].Products(0, q, dst) }
