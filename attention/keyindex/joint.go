package keyindex

import (
	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/policy"
)

// Joint is a low-rank copy of one layer's keys, all KV heads of a token side by side (KVSwap): a column a token, the key times a
// matrix [rank, heads·dim] that the policy gives once.
type Joint struct {
	rank, dim int
	columns   *Columns
	matrix    []float32
	tokens    int
	last      int32
	reader    attention.Reader
	head, key []float32
	y         []float32
}

// refresh brings the copy in line with the cache: new tokens are added; where tokens have gone it is built again.
func (j *Joint) refresh(views []attention.View, l *policy.Layer, p policy.Projector) {
	pos, n := l.Pos[0], len(l.Pos[0])
	for g := range views {
		n = min(n, len(l.Pos[g]))
	}
	if j.tokens > n || j.tokens > 0 && pos[j.tokens-1] != j.last {
		j.reset()
	}
	if j.tokens == n {
		return
	}
	width := len(views) * j.dim
	if j.columns == nil {
		elem := kvpage.F16
		if views[0].Layout.K == kvpage.F32 {
			elem = kvpage.F32
		}
		j.columns = NewColumns(elem, j.rank)
	}
	if j.matrix == nil {
		j.matrix = make([]float32, j.rank*width)
		p.Project(l, 0, j.matrix)
	}
	j.head, j.key, j.y = sized(j.head, kernels.PanelCols*j.dim), sized(j.key, kernels.PanelCols*width), sized(j.y, j.rank)
	for j.tokens < n {
		m := min(kernels.PanelCols-j.tokens%kvpage.Tile, n-j.tokens)
		for g := range views {
			j.reader.Keys(&views[g], j.tokens, j.tokens+m, j.head)
			for i := range m {
				copy(j.key[i*width+g*j.dim:][:j.dim], j.head[i*j.dim:])
			}
		}
		for i := range m {
			for r := range j.y {
				j.y[r] = kernels.Dot(j.matrix[r*width:(r+1)*width], j.key[i*width:(i+1)*width])
			}
			j.columns.Put(j.tokens+i, j.y)
		}
		j.tokens += m
	}
	j.last = pos[n-1]
}

func (j *Joint) reset() {
	j.tokens, j.matrix = 0, nil
	if j.columns != nil {
		j.columns.Reset()
	}
}

func (j *Joint) bytes() int64 {
	n := int64(4 * len(j.matrix))
	if j.columns != nil {
		n += j.columns.Bytes()
	}
	return n
}

// RefreshJoint is Refresh of what KV heads have together; it does nothing where they have nothing.
func (x *Index) RefreshJoint(views []attention.View, l *policy.Layer, p policy.Projector) {
	if x.joint != nil {
		x.joint.refresh(views, l, p)
	}
}
