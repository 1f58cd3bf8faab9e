package kernels

import "unsafe"

// manyKernels multiply a tile with many activation rows: spread turns 8 records at a time into a panel of whole bytes and
// float32 scales, which multiply takes past one group of 4 rows after the other. Arithmetic is that of the dot kernels,
// operation by operation. Both are nil where the dot kernels are as fast.
type manyKernels struct {
	spread   func(panel, tile *byte, first, records int)
	multiply func(dst *float32, strideBytes uintptr, panel, act *byte, groupBytes uintptr, records, groups int)
}

const (
	manyRows    = 4   // of a group
	mostMany    = 128 // rows that pass a panel before it is spread again
	fewestMany  = 16  // rows that pay for the spreading
	leastMany   = 64  // rows of a chunk
	manyRecords = 8   // of a panel, of at most 768 bytes each
)

// manyGroups is how many of groups [from, to), from the first on, pass one panel; 0 where the dot kernels take them.
func (j *matmulJob) manyGroups(k *tileKernels, from, to int) int {
	n := 0
	for from+n < to && n < mostMany/manyRows && j.acts.groups[from+n].rows == manyRows {
		n++
	}
	if k.many.spread == nil || n < fewestMany/manyRows {
		return 0
	}
	return n
}

// many computes the products of tile w with n groups from group from on: out [rows][stride], 16 numbers a row.
func (j *matmulJob) many(s *matmulScratch, k *tileKernels, w *byte, from, n int, out []float32, stride int) {
	for r := range n * manyRows {
		clear(out[r*stride : r*stride+tileRows])
	}
	panel := (*byte)(unsafe.Pointer(&s.panel[0]))
	group := manyRows * j.acts.records * actBytes
	act := j.acts.buf[j.acts.groups[from].first*j.acts.records*actBytes:][:n*group]
	for r := 0; r < j.acts.records; r += manyRecords {
		records := min(manyRecords, j.acts.records-r)
		k.many.spread(panel, w, r, records)
		k.many.multiply(&out[0], uintptr(stride)*4, panel, &act[r*manyRows*actBytes], uintptr(group), records, n)
	}
}
