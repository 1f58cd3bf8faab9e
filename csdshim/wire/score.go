package wire

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/x448/float16"
)

// MaxBlockTokens is the most tokens of a score block.
const MaxBlockTokens = 1 << 16

// Query is what a layer's tokens are scored with.
//
// For integer codes a token's score is Σ Int8·code over all KV heads and dimensions, an exact integer, divided by 2^Shift
// and rounded to half precision. For CodesHalf it is the float32 sum of the products, KV head by KV head, for
// CodesProduct that of the query's products with the token's centroids: the two of a byte first, then byte by byte.
type Query struct {
	Codes Codes     // must be the sequence's
	Int8  []int8    // [KVHeads*KeyDim], for CodesInt8 and CodesInt4
	Float []float32 // [KVHeads*KeyDim], for CodesHalf and CodesProduct
	Shift int       // 0 to 31
	Block int       // tokens a score block (n), 1 to MaxBlockTokens
	Limit int       // score only positions below it; 0 = all
}

// Score asks for the scores of a layer's cold tokens.
type Score struct {
	Seq   uint64
	Layer int
	Query Query
}

// Append adds the message's bytes to dst.
func (m Score) Append(dst []byte) []byte {
	q, e := &m.Query, encoder{dst}
	e.u64(m.Seq)
	e.u32(uint32(m.Layer))
	e.u8(uint8(q.Codes))
	e.u8(uint8(q.Shift))
	e.u32(uint32(q.Block))
	e.u32(uint32(q.Limit))
	if q.Codes.Floats() {
		e.u32(uint32(len(q.Float)))
		for _, v := range q.Float {
			e.u32(math.Float32bits(v))
		}
		return e.b
	}
	e.u32(uint32(len(q.Int8)))
	for _, v := range q.Int8 {
		e.u8(uint8(v))
	}
	return e.b
}

// ParseScore reads the payload of a TypeScore frame.
func ParseScore(b []byte) (m Score, err error) {
	q, d := &m.Query, decoder{b: b}
	m.Seq, m.Layer = d.u64(), d.index()
	q.Codes, q.Shift, q.Block, q.Limit = Codes(d.u8()), int(d.u8()), d.index(), d.index()
	n := d.index()
	switch {
	case q.Codes.Floats():
		if raw := d.take(4 * n); raw != nil {
			q.Float = make([]float32, n)
			for i := range q.Float {
				q.Float[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
			}
		}
	case q.Codes == CodesInt8 || q.Codes == CodesInt4:
		if raw := d.take(n); raw != nil {
			q.Int8 = make([]int8, n)
			for i, v := range raw {
				q.Int8[i] = int8(v)
			}
		}
	default:
		d.failed = true
	}
	if q.Shift > 31 || q.Block < 1 || q.Block > MaxBlockTokens {
		d.failed = true
	}
	return m, d.end("score")
}

// MaxQuestions is the most questions of one message.
const MaxQuestions = 1 << 10

// ScoreMany asks several questions in one message: they are answered one after another, in their order, each as a Score alone would be.
type ScoreMany struct{ Questions []Score }

// Append adds the message's bytes to dst: u32 number of questions, then each as u32 bytes and a Score's.
func (m ScoreMany) Append(dst []byte) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, uint32(len(m.Questions)))
	for i := range m.Questions {
		at := len(dst)
		dst = m.Questions[i].Append(le.AppendUint32(dst, 0))
		le.PutUint32(dst[at:], uint32(len(dst)-at-4))
	}
	return dst
}

// ParseScoreMany reads the payload of a TypeScoreMany frame.
func ParseScoreMany(b []byte) (m ScoreMany, err error) {
	d := decoder{b: b}
	n := d.index()
	if n < 1 || n > MaxQuestions {
		return m, malformed("message of %d questions, want 1 to %d", n, MaxQuestions)
	}
	for range n {
		q, err := ParseScore(d.take(d.index()))
		if err != nil {
			return ScoreMany{}, err
		}
		m.Questions = append(m.Questions, q)
	}
	return m, d.end("questions")
}

// Answered is the outcome of one question of a ScoreMany: what it took, or why it failed.
type Answered struct {
	Timing Timing
	Failed bool
	Failure
}

// Append adds the message's bytes to dst.
func (m Answered) Append(dst []byte) []byte {
	if m.Failed {
		return m.Failure.Append(append(dst, 1))
	}
	return m.Timing.Append(append(dst, 0))
}

// ParseAnswered reads the payload of a TypeAnswered frame.
func ParseAnswered(b []byte) (m Answered, err error) {
	d := decoder{b: b}
	switch failed := d.u8(); {
	case d.failed || failed > 1:
		return m, malformed("answer is cut short or out of range")
	case failed == 1:
		m.Failed = true
		m.Failure, err = ParseFailure(d.b)
		return m, err
	}
	m.Timing, d.b, err = ParseTiming(d.b)
	if err != nil {
		return m, err
	}
	return m, d.end("answer")
}

// AppendBlock adds a score block to the payload of a Scores frame, u32 base and u32 n before its 4n bytes: positions [n] ascending, none more than 65,535 above the
// first, and their scores, which half precision holds exactly.
func AppendBlock(dst []byte, positions []int32, scores []float32) []byte {
	le := binary.LittleEndian
	base := positions[0]
	dst = le.AppendUint32(le.AppendUint32(dst, uint32(base)), uint32(len(positions)))
	at := len(dst)
	dst = slices.Grow(dst, 4*len(positions))[:at+4*len(positions)]
	for i, p := range positions {
		le.PutUint32(dst[at+4*i:], uint32(uint16(p-base))|uint32(halfBits(scores[i]))<<16)
	}
	return dst
}

// halfBits is a float in half precision; one that half precision holds exactly, and is no subnormal there, without ado.
func halfBits(f float32) uint16 {
	bits := math.Float32bits(f)
	if exp := bits >> 23 & 0xff; exp >= 113 && exp <= 142 && bits&0x1fff == 0 {
		return uint16(bits>>16&0x8000 | (exp-112)<<10 | bits>>13&0x3ff)
	}
	return float16.Fromfloat32(f).Bits()
}

// halfFloat is the number of a half precision value.
func halfFloat(h uint16) float32 {
	if exp := uint32(h) >> 10 & 0x1f; exp >= 1 && exp <= 30 {
		return math.Float32frombits(uint32(h)&0x8000<<16 | (exp+112)<<23 | uint32(h)&0x3ff<<13)
	}
	return float16.Frombits(h).Float32()
}

// BlockBytes is the size of n tokens' scores by the paper's account: two half-precision values a token.
func BlockBytes(n int) int { return 4 * n }

// Block is a score block: Scores[i] is that of the token at Positions[i], ascending.
type Block struct {
	Positions []int32
	Scores    []float32
}

// ParseScores reads the blocks of a Scores frame one by one; the block's slices are used again for the next. Positions
// must rise from block to block, starting above after, and stay below limit; scores must be numbers. It returns the last
// position.
func ParseScores(b []byte, after int32, limit int, block *Block, each func(*Block) error) (last int32, err error) {
	d := decoder{b: b}
	for len(d.b) > 0 {
		base, n := d.index(), d.index()
		if n < 1 || n > MaxBlockTokens {
			return after, malformed("score block of %d tokens", n)
		}
		raw := d.take(BlockBytes(n))
		if raw == nil {
			return after, malformed("score block is cut short")
		}
		block.Positions, block.Scores = block.Positions[:0], block.Scores[:0]
		for ; len(raw) > 0; raw = raw[4:] {
			v := binary.LittleEndian.Uint32(raw)
			p, s := int64(base)+int64(v&0xffff), halfFloat(uint16(v>>16))
			if p <= int64(after) || p >= int64(limit) {
				return after, malformed("score of position %d after %d, of %d tokens", p, after, limit)
			}
			if s != s {
				return after, malformed("score of position %d is not a number", p)
			}
			after = int32(p)
			block.Positions, block.Scores = append(block.Positions, after), append(block.Scores, s)
		}
		if err := each(block); err != nil {
			return after, err
		}
	}
	return after, nil
}
