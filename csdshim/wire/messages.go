package wire

import "math"

// Hello is the client's first frame.
type Hello struct {
	Owner   [16]byte // whose sequences these are: sequence numbers of different owners never meet
	LeaseMs uint32   // the owner's sequences go when it was away this long; 0 = they stay until they are dropped
	// ShareBytes is the size of the memory whose file comes with the frame, for replies (Header.At of a request); 0 = none.
	ShareBytes uint32
}

// Append adds the message's bytes to dst.
func (m Hello) Append(dst []byte) []byte {
	e := encoder{dst}
	e.bytes(m.Owner[:])
	e.u32(m.LeaseMs)
	e.u32(m.ShareBytes)
	return e.b
}

// ParseHello reads the payload of a TypeHello frame.
func ParseHello(b []byte) (m Hello, err error) {
	d := decoder{b: b}
	copy(m.Owner[:], d.take(16))
	m.LeaseMs, m.ShareBytes = d.u32(), d.u32()
	return m, d.end("hello")
}

// Identity is what a drive says about itself.
type Identity struct {
	Profile string // name of its profile
	Keys    string // where the key codes lie that it scores: ddr or nand
	Clock   string // real or virtual
	Kernels string // CPU path of its scoring engine: sums of half-precision keys are bit-equal on the same path only

	CapacityBytes, UsedBytes, DRAMBytes           uint64
	PageBytes, Channels, Dies, Planes, BlockPages uint32

	LinkBytesPerS, NANDBytesPerS, ScanBytesPerS float64 // of the profile; 0 = not limited
	CanScore, CanAttend                         bool
	Shares                                      bool // replies may go to the memory that came with the hello
}

// Paced reports whether the drive answers no earlier than the profile that it mimics says: times taken with it are the
// profile's, not a device's.
func (m Identity) Paced() bool {
	return m.Clock == "real" && m.LinkBytesPerS+m.NANDBytesPerS+m.ScanBytesPerS > 0
}

// Append adds the message's bytes to dst.
func (m Identity) Append(dst []byte) []byte {
	e := encoder{dst}
	for _, s := range [...]string{m.Profile, m.Keys, m.Clock, m.Kernels} {
		e.text(s)
	}
	for _, v := range [...]uint64{m.CapacityBytes, m.UsedBytes, m.DRAMBytes} {
		e.u64(v)
	}
	for _, v := range [...]uint32{m.PageBytes, m.Channels, m.Dies, m.Planes, m.BlockPages} {
		e.u32(v)
	}
	for _, v := range [...]float64{m.LinkBytesPerS, m.NANDBytesPerS, m.ScanBytesPerS} {
		e.u64(math.Float64bits(v))
	}
	e.u8(map[bool]uint8{true: 1}[m.CanScore])
	e.u8(map[bool]uint8{true: 1}[m.CanAttend])
	e.u8(map[bool]uint8{true: 1}[m.Shares])
	return e.b
}

// ParseIdentity reads the payload of a TypeWelcome frame.
func ParseIdentity(b []byte) (m Identity, err error) {
	d := decoder{b: b}
	for _, s := range [...]*string{&m.Profile, &m.Keys, &m.Clock, &m.Kernels} {
		*s = d.text()
	}
	for _, v := range [...]*uint64{&m.CapacityBytes, &m.UsedBytes, &m.DRAMBytes} {
		*v = d.u64()
	}
	for _, v := range [...]*uint32{&m.PageBytes, &m.Channels, &m.Dies, &m.Planes, &m.BlockPages} {
		*v = d.u32()
	}
	for _, v := range [...]*float64{&m.LinkBytesPerS, &m.NANDBytesPerS, &m.ScanBytesPerS} {
		*v = math.Float64frombits(d.u64())
	}
	m.CanScore, m.CanAttend, m.Shares = d.u8() == 1, d.u8() == 1, d.u8() == 1
	return m, d.end("welcome")
}

// Failure ends a request that could not be done.
type Failure struct {
	Code uint16
	Text string // one line
}

// Append adds the message's bytes to dst.
func (m Failure) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u16(m.Code)
	e.text(m.Text)
	return e.b
}

// ParseFailure reads the payload of a TypeError frame.
func ParseFailure(b []byte) (m Failure, err error) {
	d := decoder{b: b}
	m.Code, m.Text = d.u16(), d.text()
	return m, d.end("error")
}

// Open opens a sequence: new, or there already with the same shape.
type Open struct {
	Seq   uint64
	Shape Shape
}

// Append adds the message's bytes to dst.
func (m Open) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u64(m.Seq)
	m.Shape.encode(&e)
	return e.b
}

// ParseOpen reads the payload of a TypeOpen frame.
func ParseOpen(b []byte) (m Open, err error) {
	d := decoder{b: b}
	m.Seq = d.u64()
	m.Shape = decodeShape(&d)
	if err := d.end("open"); err != nil {
		return m, err
	}
	return m, m.Shape.Validate()
}

// Place names one group of a layer.
type Place struct{ Layer, Group int32 }

const placeBytes = 8

func (e *encoder) places(p []Place) {
	e.u32(uint32(len(p)))
	for _, x := range p {
		e.u32(uint32(x.Layer))
		e.u32(uint32(x.Group))
	}
}

func (d *decoder) places() []Place {
	n := d.index()
	if n > len(d.b)/placeBytes {
		d.failed = true
		return nil
	}
	p := make([]Place, n)
	for i := range p {
		p[i] = Place{Layer: int32(d.index()), Group: int32(d.index())}
	}
	return p
}

// Write stores groups: for each place its record.
type Write struct {
	Seq         uint64
	RecordBytes int // a group
	Places      []Place
	Bytes       []byte // of all: [len(Places)][RecordBytes]
}

// AppendHead adds all but the groups' bytes to dst.
func (m Write) AppendHead(dst []byte) []byte {
	e := encoder{dst}
	e.u64(m.Seq)
	e.u32(uint32(m.RecordBytes))
	e.places(m.Places)
	return e.b
}

// ParseWrite reads the payload of a TypeWrite frame; Bytes is a part of b.
func ParseWrite(b []byte) (m Write, err error) {
	d := decoder{b: b}
	m.Seq, m.RecordBytes = d.u64(), d.index()
	m.Places = d.places()
	each := m.RecordBytes
	if d.failed || each < 1 || len(m.Places) == 0 || len(d.b)%each != 0 || len(d.b)/each != len(m.Places) {
		return m, malformed("write of %d groups of %d bytes with %d bytes", len(m.Places), each, len(d.b))
	}
	m.Bytes = d.take(len(d.b))
	return m, d.end("write")
}

// Record is that of the i-th place.
func (m Write) Record(i int) []byte { return m.Bytes[i*m.RecordBytes:][:m.RecordBytes:m.RecordBytes] }

// Scales are what a layer's keys are divided by to become integer codes, [KVHeads] or [KVHeads][KeyDim], or the centroids of
// CodesProduct, [KVHeads][KeyDim/2][16][2].
type Scales struct {
	Seq    uint64
	Layer  int
	Values []float32
}

// Append adds the message's bytes to dst.
func (m Scales) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u64(m.Seq)
	e.u32(uint32(m.Layer))
	e.float32s(m.Values)
	return e.b
}

// ParseScales reads the payload of a TypeScales frame. Every one is a number.
func ParseScales(b []byte) (m Scales, err error) {
	d := decoder{b: b}
	m.Seq, m.Layer = d.u64(), d.index()
	m.Values = d.float32s()
	for _, v := range m.Values {
		d.failed = d.failed || !(v >= -math.MaxFloat32 && v <= math.MaxFloat32)
	}
	return m, d.end("scales")
}

// Fetch asks for whole groups; the reply's Data are their records in the order asked.
type Fetch struct {
	Seq    uint64
	Places []Place
}

// Append adds the message's bytes to dst.
func (m Fetch) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u64(m.Seq)
	e.places(m.Places)
	return e.b
}

// ParseFetch reads the payload of a TypeFetch frame.
func ParseFetch(b []byte) (m Fetch, err error) {
	d := decoder{b: b}
	m.Seq, m.Places = d.u64(), d.places()
	return m, d.end("fetch")
}

// Gather asks for single tokens of a layer, in rising order; the reply's Data are ⌈n/16⌉ records that hold exactly these
// tokens, one after another.
type Gather struct {
	Seq       uint64
	Layer     int
	Positions []int32
}

// Append adds the message's bytes to dst.
func (m Gather) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u64(m.Seq)
	e.u32(uint32(m.Layer))
	e.int32s(m.Positions)
	return e.b
}

// ParseGather reads the payload of a TypeGather frame.
func ParseGather(b []byte) (m Gather, err error) {
	d := decoder{b: b}
	m.Seq, m.Layer = d.u64(), d.index()
	m.Positions = d.int32s()
	return m, d.end("gather")
}

// Tokens are positions of a sequence, for TypePromote and TypeDemote.
type Tokens struct {
	Seq       uint64
	Positions []int32
}

// Append adds the message's bytes to dst.
func (m Tokens) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u64(m.Seq)
	e.int32s(m.Positions)
	return e.b
}

// ParseTokens reads the payload of a TypePromote or TypeDemote frame.
func ParseTokens(b []byte) (m Tokens, err error) {
	d := decoder{b: b}
	m.Seq, m.Positions = d.u64(), d.int32s()
	return m, d.end("tokens")
}

// Drop forgets the groups of a sequence from one on; from 0 on, the sequence itself.
type Drop struct {
	Seq  uint64
	From int
}

// Append adds the message's bytes to dst.
func (m Drop) Append(dst []byte) []byte {
	e := encoder{dst}
	e.u64(m.Seq)
	e.u32(uint32(m.From))
	return e.b
}

// ParseDrop reads the payload of a TypeDrop frame.
func ParseDrop(b []byte) (m Drop, err error) {
	d := decoder{b: b}
	m.Seq, m.From = d.u64(), d.index()
	return m, d.end("drop")
}
