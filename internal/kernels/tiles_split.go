package kernels

// The matrix unit's arithmetic for few rows, of weights in BF16: an activation is what bf16 holds of it and what that leaves, in
// bf16 too, 16 bits of 24. A group of 32 rows of A tiles is 16 activations and what they leave, so that the product is that of
// many rows on tiles as they are packed, and a result is the sum of two:
//
//	step: 2 KiB of weights from memory in the 64 cycles of 4 TDPBF16PS, whether 1 row or 16
//
// A core reads a third of that from memory. More than 16 rows go slice by slice, so that weights are read once.
const splitRows = 16

// splitTask multiplies pairs of tiles with groups [from, to) of split activations.
func (j *matmulJob) splitTask(t *matmulTask, s *matmulScratch) {
	q, groups := j.products[t.product], t.to-t.from
	s.makeSums(groups)
	for tile := t.first; tile < t.last; tile += 2 {
		for step, steps := 0, 0; step < j.rounded.steps; step += steps {
			a, behind := &s.args, 0
			if steps = j.rounded.slice(step); j.rounded.groups == 1 {
				steps, behind = j.rounded.steps, q.W.tile
			}
			*a = tileArgs{dst: &s.sums[0], strideBytes: groupRows * 4, act: j.rounded.at(step, t.from), groupBytes: uintptr(steps) * stepBytes,
				steps: steps, groups: groups, tileBytes: uintptr(behind)}
			if a.pairs(q.W, tile, tileBytes(q.W.typ, step*recordCols)); step > 0 {
				a.from = a.dst
			}
			simd.matrix.once(&tileConfig[0], a)
		}
		row0 := tile * tileRows
		rows := min(groupRows, q.W.rows-row0)
		for r := t.from * splitRows; r < min(t.to*splitRows, j.n); r++ {
			at := (r-t.from*splitRows)/splitRows*groupRows + r%splitRows
			sum, left := s.sums[at*groupRows:][:groupRows], s.sums[(at+splitRows)*groupRows:][:groupRows]
			elem.add(sum, left)
			if dst := q.Dst[r*q.W.rows+row0:][:rows]; q.Add {
				elem.add(dst, sum[:rows])
			} else {
				copy(dst, sum)
			}
		}
	}
}
