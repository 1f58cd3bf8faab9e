package kernels

// The bf16 arithmetic of the matrix unit (AMX, or VDPBF16PS for weights of 16 bits): weights are unpacked to bf16 panels of 32 rows and activations rounded to
// bf16, both to nearest even, and products are summed in float32, which beats int8 activations in accuracy
// (2^-9 of each value against 2^-8 of the largest of 32). A tile is 16 rows of 64 bytes.
const (
	stepBytes = 2048 // one step of 32 columns: two A tiles of activations, or two B tiles of weights
	groupRows = 32   // activation rows and weight rows of one product of 2 by 2 tiles
)

// tileConfig is the palette for LDTILECFG: eight tiles of 16 rows of 64 bytes.
var tileConfig = func() (c [64]byte) {
	c[0] = 1
	for tile := range 8 {
		c[16+2*tile] = 64
		c[48+tile] = 16
	}
	return c
}()

// rounded are activations in bf16: groups of 32 rows, each a row of steps, each two A tiles of 16 rows by 32 columns.
// Rows past the end of the last group hold whatever they held: they only make results that nobody reads.
type rounded struct {
	buf   []byte
	steps int
}

func (a *rounded) plan(n, cols int) {
	a.steps = cols / recordCols
	if need := groupsOf(n) * a.steps * stepBytes; len(a.buf) < need {
		a.buf = make([]byte, need)
	}
}

func groupsOf(n int) int { return (n + groupRows - 1) / groupRows }

func (a *rounded) group(g int) *byte { return &a.buf[g*a.steps*stepBytes] }

// fill rounds row r of x [n, cols].
func (a *rounded) fill(u *matrixUnit, r int, x []float32) {
	at := r/groupRows*a.steps*stepBytes + r%groupRows*64
	u.round(&a.buf[at], &x[r*a.steps*recordCols], a.steps)
}

// matrixTask multiplies pairs of tiles, unpacked to a bf16 panel, with groups [from, to) of the rounded activations.
func (j *matmulJob) matrixTask(t *matmulTask, s *matmulScratch) {
	q, steps, unit := j.products[t.product], j.rounded.steps, simd.matrix
	if len(s.bf16) < steps*stepBytes {
		s.bf16 = make([]byte, steps*stepBytes)
	}
	unpack := unit.unpack[q.W.typ]
	for tile := t.first; tile < t.last; tile += 2 {
		row0 := tile * tileRows
		rows := min(groupRows, q.W.rows-row0)
		unpack(&s.bf16[0], q.W.tileAt(tile), steps)
		if rows > tileRows {
			unpack(&s.bf16[stepBytes/2], q.W.tileAt(tile+1), steps)
		}
		whole := t.to
		if t.to*groupRows > j.n {
			whole--
		}
		if rows < groupRows {
			whole = t.from
		}
		if whole > t.from {
			unit.multiply(&tileConfig[0], &q.Dst[t.from*groupRows*q.W.rows+row0], uintptr(q.W.rows)*4,
				&s.bf16[0], j.rounded.group(t.from), steps, whole-t.from)
		}
		for g := whole; g < t.to; g++ {
			unit.multiply(&tileConfig[0], &s.out[0], groupRows*4, &s.bf16[0], j.rounded.group(g), steps, 1)
			for r := range min(groupRows, j.n-g*groupRows) {
				copy(q.Dst[(g*groupRows+r)*q.W.rows+row0:][:rows], s.out[r*groupRows:])
			}
		}
	}
}
