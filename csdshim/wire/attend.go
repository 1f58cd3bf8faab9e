package wire

import (
	"math"

	"terrace/internal/kvpage"
)

// AttendShape says what a sequence is whose attention the drive computes; it is fixed when the sequence is opened.
type AttendShape struct {
	Layers, Heads    int // KV heads that lie on this drive
	KeyDim, ValueDim int
	ElemBytes        int         // of one number
	TokenGroup       int         // tokens of a token page (the paper's n)
	EmbeddingGroup   int         // dimensions of an embedding page (m): 2, 4 or 8; 0 = no embedding copy
	Paired           bool        // a token page has keys and behind them values of TokenGroup tokens, not either of them
	Elem             kvpage.Elem // of keys and values: f32, f16 or bf16
	Fingerprint      [32]byte    // of model and KV type: a sequence opened again must have the same
}

// KeyRowBytes is the size of one token's key of one head.
func (s AttendShape) KeyRowBytes() int { return s.KeyDim * s.ElemBytes }

// ValueRowBytes is the size of one token's value of one head.
func (s AttendShape) ValueRowBytes() int { return s.ValueDim * s.ElemBytes }

// EmbeddingTokens is how many tokens an embedding page of a size holds; 0 = there is no embedding copy.
func (s AttendShape) EmbeddingTokens(pageBytes int) int {
	if s.EmbeddingGroup == 0 {
		return 0
	}
	return pageBytes / (s.EmbeddingGroup * s.ElemBytes)
}

// attendMark begins the bytes of an AttendShape, where a Shape has its number of layers.
const attendMark = 1<<32 - 1

// pairedGroup is set in TokenGroup's bytes where keys and values share pages.
const pairedGroup = 1 << 30

// MaxAttendBytes is the most that the keys and values of one Append, or the query or output of one Attend, may take.
const MaxAttendBytes = maxPayloadBytes - 4096

// Validate reports the first number out of range; a token of all heads must fit a frame.
func (s AttendShape) Validate() error {
	switch {
	case s.Layers < 1 || s.Layers > maxLayers:
		return malformed("shape of %d layers, want 1 to %d", s.Layers, maxLayers)
	case s.Heads < 1 || s.Heads > maxHeads:
		return malformed("shape of %d KV heads, want 1 to %d", s.Heads, maxHeads)
	case s.Elem > kvpage.BF16 || s.ElemBytes*8 != s.Elem.Bits():
		return malformed("shape of %v in %d bytes, want f32, f16 or bf16", s.Elem, s.ElemBytes)
	case s.KeyDim < 1 || s.KeyDim > 1<<14 || s.ValueDim < 1 || s.ValueDim > 1<<14:
		return malformed("shape of heads of %d and %d numbers, want 1 to %d", s.KeyDim, s.ValueDim, 1<<14)
	case s.TokenGroup < 1 || s.TokenGroup > 1<<16:
		return malformed("shape with groups of %d tokens, want 1 to %d", s.TokenGroup, 1<<16)
	case s.EmbeddingGroup != 0 && s.EmbeddingGroup != 2 && s.EmbeddingGroup != 4 && s.EmbeddingGroup != 8:
		return malformed("shape with groups of %d dimensions, want 2, 4, 8, or 0 for none", s.EmbeddingGroup)
	case s.TokenBytes() > MaxAttendBytes || 4*s.Heads*s.ValueDim > MaxAttendBytes:
		return malformed("a token of %d bytes does not fit a frame of %d", s.TokenBytes(), maxPayloadBytes)
	}
	return nil
}

// TokenBytes is what one token's keys and values of a layer take, all heads.
func (s AttendShape) TokenBytes() int { return s.Heads * (s.KeyRowBytes() + s.ValueRowBytes()) }

// Append adds the shape's bytes to dst; ParseAttendShape reads them.
func (s AttendShape) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u32(attendMark)
	group := s.TokenGroup
	if s.Paired {
		group |= pairedGroup
	}
	for _, v := range [...]int{s.Layers, s.Heads, s.KeyDim, s.ValueDim, s.ElemBytes, group, s.EmbeddingGroup, int(s.Elem)} {
		e.u32(uint32(v))
	}
	e.bytes(s.Fingerprint[:])
	return e.b
}

// IsAttendShape reports whether bytes are those of an AttendShape, and not of a Shape.
func IsAttendShape(b []byte) bool {
	d := decoder{b: b}
	return d.u32() == attendMark && !d.failed
}

// ParseAttendShape reads what Append wrote and validates it.
func ParseAttendShape(b []byte) (s AttendShape, err error) {
	d := decoder{b: b}
	d.failed = d.u32() != attendMark
	for _, v := range [...]*int{&s.Layers, &s.Heads, &s.KeyDim, &s.ValueDim, &s.ElemBytes, &s.TokenGroup, &s.EmbeddingGroup} {
		*v = d.index()
	}
	s.Paired, s.TokenGroup = s.TokenGroup&pairedGroup != 0, s.TokenGroup&^pairedGroup
	s.Elem = kvpage.Elem(min(d.u32(), 255))
	copy(s.Fingerprint[:], d.take(len(s.Fingerprint)))
	if err := d.end("shape"); err != nil {
		return s, err
	}
	return s, s.Validate()
}

// OpenAttend opens a sequence that the drive attends to: new, or there already with the same shape.
type OpenAttend struct {
	Seq   uint64
	Shape AttendShape
}

// Append adds the message's bytes to dst.
func (m OpenAttend) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u64(m.Seq)
	return m.Shape.Append(e.b)
}

// ParseOpenAttend reads the payload of a TypeOpenAttend frame.
func ParseOpenAttend(b []byte) (m OpenAttend, err error) {
	d := decoder{b: b}
	m.Seq = d.u64()
	if d.failed {
		return m, d.end("open")
	}
	m.Shape, err = ParseAttendShape(d.b)
	return m, err
}

// Tail is new tokens at the end of a layer: Keys [Tokens][Heads][KeyDim] and Values [Tokens][Heads][ValueDim] as they are stored.
type Tail struct {
	Seq          uint64
	Layer        int
	At           int // tokens that the layer had before; a Tail that is there already changes nothing
	Tokens       int
	Keys, Values []byte
}

func (m *Tail) encodeHead(e *encoder) {
	e.u64(m.Seq)
	for _, v := range [...]int{m.Layer, m.At, m.Tokens, len(m.Keys), len(m.Values)} {
		e.u32(uint32(v))
	}
}

func (m *Tail) decode(d *decoder) {
	m.Seq = d.u64()
	var keys, values int
	for _, v := range [...]*int{&m.Layer, &m.At, &m.Tokens, &keys, &values} {
		*v = d.index()
	}
	m.Keys, m.Values = d.take(keys), d.take(values)
}

// AppendHead adds all but the keys and values, which follow it.
func (m Tail) AppendHead(dst []byte) []byte {
	e := encoder{dst}
	m.encodeHead(&e)
	return e.b
}

// ParseTail reads the payload of a TypeAppend frame; Keys and Values are parts of b.
func ParseTail(b []byte) (m Tail, err error) {
	d := decoder{b: b}
	m.decode(&d)
	return m, d.end("append")
}

// Attend asks for a layer's attention to all of its tokens, those of the Tail, which are appended first, among them. The query is
// that of the newest token, for every query head of the sequence's KV heads.
type Attend struct {
	Tail    Tail
	Traced  bool      // the answer says when each unit worked
	Exact   bool      // in the arithmetic of float32 with exact exponentials; else that of decoding
	Scale   float32   // of q·k before the softmax
	Softcap float32   // scores become Softcap·tanh(score/Softcap); 0 = none
	Window  int       // only the newest tokens; 0 = all
	Dims    int       // SparF's r; 0 = dense
	Best    int       // SparF's k
	Local   int       // SparF's l
	Q       []float32 // [query heads of all KV heads, KeyDim]
}

// AppendHead adds all but the keys and values of the tail, which follow it.
func (m Attend) AppendHead(dst []byte) []byte {
	e := encoder{dst}
	e.u8(map[bool]uint8{true: 1}[m.Exact])
	e.u8(map[bool]uint8{true: 1}[m.Traced])
	e.u32(math.Float32bits(m.Scale))
	e.u32(math.Float32bits(m.Softcap))
	for _, v := range [...]int{m.Window, m.Dims, m.Best, m.Local} {
		e.u32(uint32(v))
	}
	e.float32s(m.Q)
	m.Tail.encodeHead(&e)
	return e.b
}

// ParseAttend reads the payload of a TypeAttend frame; the tail's Keys and Values are parts of b.
func ParseAttend(b []byte) (m Attend, err error) {
	d := decoder{b: b}
	exact, traced := d.u8(), d.u8()
	d.failed = d.failed || exact > 1 || traced > 1
	m.Exact, m.Traced, m.Scale, m.Softcap = exact == 1, traced == 1, math.Float32frombits(d.u32()), math.Float32frombits(d.u32())
	for _, v := range [...]*int{&m.Window, &m.Dims, &m.Best, &m.Local} {
		*v = d.index()
	}
	m.Q = d.float32s()
	m.Tail.decode(&d)
	return m, d.end("attend")
}

// Attended is the drive's answer: attention over the tokens it holds, and what the softmax was divided by, so that parts held
// elsewhere merge exactly.
type Attended struct {
	Out         []float32 // [query heads, ValueDim]
	Max, LogSum []float32 // [query heads] largest score and log-sum-exp
	Work        Work
	Stages      []Stage // where Traced was set
}

// Unit is a part of the drive that works on a request.
type Unit uint8

// The units, in the order of the paper's engine.
const (
	UnitLink Unit = iota
	UnitArgTopK
	UnitNAND // a channel
	UnitFilter
	UnitKernel
	unitEnd
)

// String is the unit's name in a timeline.
func (u Unit) String() string {
	if u < unitEnd {
		return [...]string{"link", "argtopk", "channel", "filter", "kernel"}[u]
	}
	return "?"
}

// Stage is one unit's modelled work, in nanoseconds after the request came.
type Stage struct {
	Unit     Unit
	Lane     uint8 // which channel, filter or kernel
	From, To uint64
}

// Work is what an Append or Attend cost on the drive, counted by layer and KV head.
type Work struct {
	PagesWanted     uint64 // that hold a chosen dimension (embedding pages) or token (pages of keys and of values)
	PagesRead       uint64 // that left the flash
	PagesProgrammed uint64
	TokensScored    uint64
	TokensAttended  uint64
}

func (w *Work) fields() []*uint64 {
	return []*uint64{&w.PagesWanted, &w.PagesRead, &w.PagesProgrammed, &w.TokensScored, &w.TokensAttended}
}

// Add adds another's.
func (w *Work) Add(more Work) {
	for i, f := range w.fields() {
		*f += *more.fields()[i]
	}
}

// Append adds the message's bytes to dst.
func (m Attended) Append(dst []byte) []byte {
	e := encoder{appendFields(dst, m.Work.fields())}
	e.float32s(m.Out)
	e.float32s(m.Max)
	e.float32s(m.LogSum)
	e.u32(uint32(len(m.Stages)))
	for _, s := range m.Stages {
		e.u8(uint8(s.Unit))
		e.u8(s.Lane)
		e.u64(s.From)
		e.u64(s.To)
	}
	return e.b
}

// ParseAttended reads what follows the timing in the reply to a TypeAttend or TypeAppend frame.
func ParseAttended(b []byte) (m Attended, err error) {
	d := decoder{b: b}
	for _, f := range m.Work.fields() {
		*f = d.u64()
	}
	m.Out, m.Max, m.LogSum = d.float32s(), d.float32s(), d.float32s()
	if n := d.index(); n <= len(d.b)/18 {
		for range n {
			s := Stage{Unit: Unit(d.u8()), Lane: d.u8(), From: d.u64(), To: d.u64()}
			d.failed = d.failed || s.Unit >= unitEnd || s.From > s.To
			m.Stages = append(m.Stages, s)
		}
	} else {
		d.failed = true
	}
	return m, d.end("attended")
}
