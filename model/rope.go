package model

import (
	"fmt"
	"math"
	"slices"

	"terrace/weights/gguf"
)

// Rope is one rotary position embedding: which part of a head turns and at what speeds. The scaling methods (linear, llama3,
// yarn, longrope, dynamic) change the frequencies and an amplitude; see ropeFromMeta.
type Rope struct {
	Dim        int       // dimensions that rotate, even, at most dk
	Interlaced bool      // pairs are (2i, 2i+1) (GGUF's llama order) instead of (i, i+Dim/2)
	InvFreq    []float32 // [Dim/2] radians a token
	Amplitude  float32   // multiplies cos and sin (yarn, longrope); 0 = 1

	LongFreq []float32 // [Dim/2] used for sequences longer than LongAbove (longrope); nil = none
	LongAt   int

	DynamicBase   float64 // dynamic NTK: base of the frequencies, which grow past DynamicAt; 0 = off
	DynamicFactor float64
	DynamicAt     int
}

// invFreq computes base^(-2i/dim) for i in [0, dim/2).
func invFreq(base float64, dim int) []float32 {
	f := make([]float32, dim/2)
	for i := range f {
		f[i] = float32(1 / math.Pow(base, float64(2*i)/float64(dim)))
	}
	return f
}

func (r *Rope) validate(keyDim int) error {
	if r.Dim < 2 || r.Dim > keyDim || r.Dim%2 != 0 {
		return fmt.Errorf("model: rope.dimension_count is %d, want an even number up to the head width %d: %w", r.Dim, keyDim, ErrConfig)
	}
	for _, list := range [][]float32{r.InvFreq, r.LongFreq} {
		if list == nil {
			continue
		}
		if len(list) != r.Dim/2 {
			return fmt.Errorf("model: %d rope frequencies for %d dimensions, want %d: %w", len(list), r.Dim, r.Dim/2, ErrConfig)
		}
		for i, f := range list {
			if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) || f < 0 {
				return fmt.Errorf("model: rope frequency %d is %v (rope.freq_base or scaling out of range): %w", i, f, ErrConfig)
			}
		}
	}
	return nil
}

// frequencies returns the radians a token for a sequence of that many tokens (only longrope and dynamic depend on it).
func (r *Rope) frequencies(lengthTokens int) []float32 {
	if r.LongFreq != nil && lengthTokens > r.LongAt {
		return r.LongFreq
	}
	if r.DynamicBase > 0 && lengthTokens > r.DynamicAt {
		s := r.DynamicFactor*float64(lengthTokens)/float64(r.DynamicAt) - (r.DynamicFactor - 1)
		return invFreq(r.DynamicBase*math.Pow(s, float64(r.Dim)/float64(r.Dim-2)), r.Dim)
	}
	return r.InvFreq
}

// LongRopeAt is the length in tokens up to which the model's first set of rotary frequencies holds (longrope, see
// arch_phi3.go); 0 where it has one set alone.
func (c *Config) LongRopeAt() int {
	for i := range c.Ropes {
		if c.Ropes[i].LongFreq != nil {
			return c.Ropes[i].LongAt
		}
	}
	return 0
}

// ByLength reports whether positions are rotated by the length of the pass that they come in.
func (r Rope) ByLength() bool { return r.LongFreq != nil || r.DynamicBase > 0 }

// ropeTable holds cos and sin of every position asked for so far, [position][Dim/2], for one Rope and frequency set.
type ropeTable struct {
	rope     *Rope
	length   int // the sequence length the frequencies are for; 0 where it does not matter
	cos, sin []float32
	upTo     int // positions filled
}

// row returns cos and sin of one position; the table grows by doubling.
func (t *ropeTable) row(pos int) (cos, sin []float32) {
	half := t.rope.Dim / 2
	if pos >= t.upTo {
		t.grow(max(pos+1, 2*t.upTo, 64))
	}
	return t.cos[pos*half : (pos+1)*half], t.sin[pos*half : (pos+1)*half]
}

// grow fills the first n positions.
func (t *ropeTable) grow(n int) {
	half := t.rope.Dim / 2
	cos, sin := make([]float32, n*half), make([]float32, n*half)
	copy(cos, t.cos)
	copy(sin, t.sin)
	freq, amp := t.rope.frequencies(t.length), float64(orOne(t.rope.Amplitude))
	for p := t.upTo; p < n; p++ {
		angles(p, freq, amp, cos[p*half:(p+1)*half], sin[p*half:(p+1)*half])
	}
	t.cos, t.sin, t.upTo = cos, sin, n
}

// angles fills cos and sin of one position.
func angles(pos int, freq []float32, amp float64, cos, sin []float32) {
	for i, f := range freq {
		// The angle is a float32 product, as in the implementations that models are trained and scored with.
		s, c := math.Sincos(float64(float32(pos) * f))
		cos[i], sin[i] = float32(c*amp), float32(s*amp)
	}
}

// rope reads the rotary embedding of all layers into c.Ropes[0].
func (r *ropeReader) rope(c *Config) {
	width := 0
	for i := range c.Layer {
		width = max(width, c.Layer[i].KeyDim)
	}
	if width == 0 {
		return // refused already, or nothing attends
	}
	rope := Rope{
		Dim:        r.intOr("rope.dimension_count", width),
		Interlaced: r.stringOr("terrace.rope.layout", ropeLayout(r.arch)) == "norm",
	}
	if r.arch == "glm4" && slices.ContainsFunc(r.eachOf("rope.dimension_sections"), func(n int) bool { return n != 0 }) {
		rope.Interlaced = false // files of models that see images have the rows of q and k in the other order
	}
	base := float64(r.floatOr("rope.freq_base", 10000))
	if rope.Dim < 2 || rope.Dim > min(width, maxHeadDim) || rope.Dim%2 != 0 {
		r.fail("metadata %q is %d, want an even number up to the head width %d: %w", r.key("rope.dimension_count"), rope.Dim, min(width, maxHeadDim), ErrConfig)
		return
	}
	if !(base >= 1 && base <= 1e12) {
		r.fail("metadata %q is %g, want 1 to 1e12: %w", r.key("rope.freq_base"), base, ErrConfig)
		return
	}
	rope.InvFreq = invFreq(base, rope.Dim)
	r.scaleRope(&rope, base, c)
	c.Ropes = []Rope{rope}
}

// slidingRope gives the layers that have a window a rotary embedding of their own: without scaling, with a base and a width of its own where
// the file has them.
func (r *ropeReader) slidingRope(c *Config) {
	r.localRope(c, r.floatOr("rope.freq_base", 10000))
}

// localRope is slidingRope with a base for files that do not say.
func (r *ropeReader) localRope(c *Config, def float32) {
	if r.faults != nil || len(c.Ropes) == 0 {
		return
	}
	full := &c.Ropes[0]
	local := Rope{Dim: r.intOr("rope.dimension_count_swa", full.Dim), Interlaced: full.Interlaced}
	base := float64(r.floatOr("rope.freq_base_swa", def))
	if local.Dim < 2 || local.Dim > maxHeadDim || local.Dim%2 != 0 {
		r.fail("metadata %q is %d, want an even number up to the head width: %w", r.key("rope.dimension_count_swa"), local.Dim, ErrConfig)
		return
	}
	if !(base >= 1 && base <= 1e12) {
		r.fail("metadata %q is %g, want 1 to 1e12: %w", r.key("rope.freq_base_swa"), base, ErrConfig)
		return
	}
	local.InvFreq = invFreq(base, local.Dim)
	c.Ropes = append(c.Ropes, local)
	for i := range c.Layer {
		if l := &c.Layer[i]; l.Window > 0 && l.Rope == 0 {
			l.Rope = 1
		}
	}
}

// layerBases gives layers the bases of the file's list (terrace.rope.bases, 0 = the layer does not rotate), where it has one, without
// scaling.
func (r *ropeReader) layerBases(c *Config) {
	const key = "terrace.rope.bases"
	if !r.meta.Has(key) || r.faults != nil || len(c.Ropes) == 0 {
		return
	}
	bases, err := r.meta.Floats(key)
	if err == nil && len(bases) != c.Layers {
		err = fmt.Errorf("metadata %q has %d entries for %d layers", key, len(bases), c.Layers)
	}
	if err != nil {
		r.fail("%w: %w", err, ErrConfig)
		return
	}
	plain, at := c.Ropes[0], map[float32]int{}
	c.Ropes = nil
	for i, base := range bases {
		if base == 0 {
			c.Layer[i].Rope = -1
			continue
		}
		if !(base >= 1 && base <= 1e12) {
			r.fail("metadata %q is %g in layer %d, want 0 or 1 to 1e12: %w", key, base, i, ErrConfig)
			return
		}
		if _, known := at[base]; !known {
			at[base] = len(c.Ropes)
			c.Ropes = append(c.Ropes, Rope{Dim: plain.Dim, Interlaced: plain.Interlaced, InvFreq: invFreq(float64(base), plain.Dim)})
		}
		c.Layer[i].Rope = at[base]
	}
}

// interlaced are the architectures whose checkpoints rotate neighbours (2i, 2i+1), beside those whose GGUF files are permuted so.
var interlaced = []string{"glm4", "ernie4_5", "ernie4_5-moe", "cohere2", "llama4", "deepseek2", "deepseek32"}

// ropeLayout is in which order GGUF files of an architecture keep the rotating pairs: norm, neighbours, or neox.
func ropeLayout(arch string) string {
	if gguf.PermutesRotary(arch) || slices.Contains(interlaced, arch) {
		return "norm"
	}
	return "neox"
}

// Rotator applies one layer's rotary embedding to single vectors of a head, for policies that look at queries before and
// after it. It is for one goroutine.
type Rotator struct {
	table      ropeTable
	first      int // of the numbers that rotate: behind a latent
	interlaced bool
	inverse    float32 // 1/amplitude²
	far        int     // a position that lies far behind the table's, whose row is here alone
	cos, sin   []float32
}

// nearRows is how many rows a rotator's table grows by at least; it grows by an eighth of a longer one.
const nearRows = 256

// row is that of the table, which does not grow up to a position far behind it.
func (r *Rotator) row(pos int) (cos, sin []float32) {
	t := &r.table
	if room := max(nearRows, t.upTo/8); pos >= t.upTo && pos < t.upTo+room {
		t.grow(pos + room)
	}
	if pos < t.upTo {
		return t.row(pos)
	}
	if r.far != pos {
		half := t.rope.Dim / 2
		r.far, r.cos, r.sin = pos, make([]float32, half), make([]float32, half)
		angles(pos, t.rope.frequencies(t.length), float64(orOne(t.rope.Amplitude)), r.cos, r.sin)
	}
	return r.cos, r.sin
}

// NewRotator returns the rotation of a layer in texts up to LongRopeAt, or in longer ones; nil where the layer has none.
func (c *Config) NewRotator(layer int, long bool) *Rotator {
	index := c.Layer[layer].Rope
	if len(c.Ropes) == 0 || index < 0 {
		return nil
	}
	r := &c.Ropes[index]
	amp, length := orOne(r.Amplitude), 0
	if long && r.LongFreq != nil {
		length = r.LongAt + 1
	}
	first := 0
	if x := c.Layer[layer].Latent; x != nil {
		first = x.Rank
	}
	return &Rotator{table: ropeTable{rope: r, length: length}, first: first, interlaced: r.Interlaced, inverse: 1 / (amp * amp)}
}

// Rotate turns x [dk] in place to a position.
func (r *Rotator) Rotate(x []float32, position int) {
	if r == nil {
		return
	}
	cos, sin := r.row(position)
	r.turn(x, cos, sin, 1, 1)
}

// Unrotate undoes Rotate.
func (r *Rotator) Unrotate(x []float32, position int) {
	if r == nil {
		return
	}
	cos, sin := r.row(position)
	r.turn(x, cos, sin, -1, r.inverse)
}

func (r *Rotator) turn(x, cos, sin []float32, sign, scale float32) {
	half := len(cos)
	x = x[r.first:]
	for i := range half {
		a, b := i, i+half
		if r.interlaced {
			a, b = 2*i, 2*i+1
		}
		c, s := cos[i]*scale, sign*sin[i]*scale
		x[a], x[b] = x[a]*c-x[b]*s, x[a]*s+x[b]*c
	}
}
