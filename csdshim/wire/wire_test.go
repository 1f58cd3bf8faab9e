package wire

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"terrace/internal/kvpage"
)

func testShape() Shape {
	return Shape{Layers: 3, KVHeads: 2, Codes: CodesInt4, Fingerprint: [32]byte{7},
		Page: kvpage.Layout{K: kvpage.F16, V: kvpage.I8, KeyDim: 64, ValueDim: 128, Tokens: 16, TokenMajor: true}}
}

// messages are one of each, with its bytes and its parser.
func messages() map[string]struct {
	value any
	bytes []byte
	parse func([]byte) (any, error)
} {
	type message = struct {
		value any
		bytes []byte
		parse func([]byte) (any, error)
	}
	hello := Hello{Owner: [16]byte{1, 2}, LeaseMs: 77, ShareBytes: 4096}
	id := Identity{Profile: "smartssd", Keys: "ddr", Clock: "real", Kernels: "avx2", CapacityBytes: 1, UsedBytes: 2, DRAMBytes: 3, PageBytes: 4, Channels: 5, Dies: 6, Planes: 7, BlockPages: 8, LinkBytesPerS: 1.5, NANDBytesPerS: 2.5, ScanBytesPerS: 3.5, CanScore: true, Shares: true}
	open := Open{Seq: 9, Shape: testShape()}
	write := Write{Seq: 4, RecordBytes: 5, Places: []Place{{1, 2}, {0, 5}}, Bytes: []byte("abcdefghij")}
	score := Score{Seq: 1, Layer: 2, Query: Query{Codes: CodesInt8, Int8: []int8{1, -2, 3}, Shift: 4, Block: 64, Limit: 1000}}
	half := Score{Seq: 1, Layer: 2, Query: Query{Codes: CodesHalf, Float: []float32{1, -2.5}, Block: 1}}
	many := ScoreMany{Questions: []Score{score, half}}
	scales := Scales{Seq: 4, Layer: 1, Values: []float32{0.5, 0}}
	attended := AttendShape{Layers: 3, Heads: 2, KeyDim: 64, ValueDim: 32, ElemBytes: 2, TokenGroup: 16, EmbeddingGroup: 4, Elem: kvpage.F16, Fingerprint: [32]byte{3}}
	openAttend := OpenAttend{Seq: 3, Shape: attended}
	tail := Tail{Seq: 3, Layer: 1, At: 7, Tokens: 2, Keys: []byte("keys"), Values: []byte("values")}
	attend := Attend{Tail: tail, Exact: true, Traced: true, Scale: 0.125, Softcap: 30, Window: 512, Dims: 8, Best: 100, Local: 25, Q: []float32{1, -2, 3}}
	answer := Attended{Out: []float32{1, 2}, Max: []float32{3}, LogSum: []float32{4}, Work: Work{5, 6, 7, 8, 9}, Stages: []Stage{{UnitKernel, 1, 5, 9}}}
	follow := func(head []byte) []byte { return append(append(head, tail.Keys...), tail.Values...) }
	stats := Stats{CapacityBytes: 1, UptimeNs: 9, TokensScored: 4}
	return map[string]message{
		"hello":        {hello, hello.Append(nil), func(b []byte) (any, error) { return ParseHello(b) }},
		"welcome":      {id, id.Append(nil), func(b []byte) (any, error) { return ParseIdentity(b) }},
		"error":        {Failure{2, "full"}, Failure{2, "full"}.Append(nil), func(b []byte) (any, error) { return ParseFailure(b) }},
		"open":         {open, open.Append(nil), func(b []byte) (any, error) { return ParseOpen(b) }},
		"write":        {write, append(write.AppendHead(nil), write.Bytes...), func(b []byte) (any, error) { return ParseWrite(b) }},
		"fetch":        {Fetch{3, []Place{{1, 2}}}, Fetch{3, []Place{{1, 2}}}.Append(nil), func(b []byte) (any, error) { return ParseFetch(b) }},
		"gather":       {Gather{3, 1, []int32{5, 6}}, Gather{3, 1, []int32{5, 6}}.Append(nil), func(b []byte) (any, error) { return ParseGather(b) }},
		"tokens":       {Tokens{3, []int32{5, 6}}, Tokens{3, []int32{5, 6}}.Append(nil), func(b []byte) (any, error) { return ParseTokens(b) }},
		"drop":         {Drop{3, 4}, Drop{3, 4}.Append(nil), func(b []byte) (any, error) { return ParseDrop(b) }},
		"score":        {score, score.Append(nil), func(b []byte) (any, error) { return ParseScore(b) }},
		"questions":    {many, many.Append(nil), func(b []byte) (any, error) { return ParseScoreMany(b) }},
		"answered":     {Answered{Timing: Timing{QueueNs: 1, LinkBytes: 9}}, Answered{Timing: Timing{QueueNs: 1, LinkBytes: 9}}.Append(nil), func(b []byte) (any, error) { return ParseAnswered(b) }},
		"answered ill": {Answered{Failed: true, Failure: Failure{2, "full"}}, Answered{Failed: true, Failure: Failure{2, "full"}}.Append(nil), func(b []byte) (any, error) { return ParseAnswered(b) }},
		"scales":       {scales, scales.Append(nil), func(b []byte) (any, error) { return ParseScales(b) }},
		"half":         {half, half.Append(nil), func(b []byte) (any, error) { return ParseScore(b) }},
		"stats":        {stats, stats.Append(nil), func(b []byte) (any, error) { return ParseStats(b) }},
		"attend shape": {attended, attended.Append(nil), func(b []byte) (any, error) { return ParseAttendShape(b) }},
		"open attend":  {openAttend, openAttend.Append(nil), func(b []byte) (any, error) { return ParseOpenAttend(b) }},
		"append":       {tail, follow(tail.AppendHead(nil)), func(b []byte) (any, error) { return ParseTail(b) }},
		"attend":       {attend, follow(attend.AppendHead(nil)), func(b []byte) (any, error) { return ParseAttend(b) }},
		"attended":     {answer, answer.Append(nil), func(b []byte) (any, error) { return ParseAttended(b) }},
		"shape":        {testShape(), testShape().Append(nil), func(b []byte) (any, error) { return ParseShape(b) }},
	}
}

// TestMessages: every message reads back as it was; cut short anywhere, or longer, it is malformed.
func TestMessages(t *testing.T) {
	for name, m := range messages() {
		got, err := m.parse(m.bytes)
		if err != nil || !reflect.DeepEqual(got, m.value) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, m.value)
		}
		for n := range m.bytes {
			if _, err := m.parse(m.bytes[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes are accepted", name, n, len(m.bytes))
			} else if !errors.Is(err, ErrFrame) && !errors.Is(err, kvpage.ErrLayout) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := m.parse(append(bytes.Clone(m.bytes), 0)); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: a byte too many: %v", name, err)
		}
	}
	tm := Timing{QueueNs: 1, LinkBytes: 9}
	got, rest, err := ParseTiming(append(tm.Append(nil), 5))
	if err != nil || got != tm || len(rest) != 1 {
		t.Errorf("timing %+v %v %v", got, rest, err)
	}
	if r := messages()["write"].value.(Write).Record(1); string(r) != "fghij" {
		t.Errorf("second group: %q", r)
	}
}

// TestHeader: every bit of a header counts.
func TestHeader(t *testing.T) {
	h := Header{Type: TypeData, ID: 5, Length: 100, At: 3, Sum: 4}
	b := h.Append(nil)
	if got, err := parseHeader(b); err != nil || got != h || len(b) != HeaderBytes {
		t.Fatalf("%+v, %v", got, err)
	}
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		_, err := parseHeader(b)
		if err == nil || !errors.Is(err, ErrFrame) && !errors.Is(err, ErrVersion) {
			t.Errorf("bit %d: %v", bit, err)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	if _, err := parseHeader(Header{Type: TypeData, Length: maxPayloadBytes + 1}.Append(nil)); !errors.Is(err, ErrFrame) {
		t.Errorf("a frame that is too long: %v", err)
	}
}

func TestShapes(t *testing.T) {
	s := testShape()
	if s.RecordBytes() != 2*(16*64*2+16*(128+4)) || s.CodeBytes() != 2*64*8 || s.Width() != 128 || s.TokenBytes() != 2*(128+132) {
		t.Errorf("%d %d %d %d", s.RecordBytes(), s.CodeBytes(), s.Width(), s.TokenBytes())
	}
	for name, change := range map[string]func(*Shape){
		"no layers":        func(s *Shape) { s.Layers = 0 },
		"many layers":      func(s *Shape) { s.Layers = 5000 },
		"no heads":         func(s *Shape) { s.KVHeads = 0 },
		"pages of 64":      func(s *Shape) { s.Page.Tokens = 64 },
		"unknown codes":    func(s *Shape) { s.Codes = 9 },
		"an empty layout":  func(s *Shape) { s.Page.KeyDim = 0 },
		"a group too big":  func(s *Shape) { s.KVHeads, s.Page.KeyDim = 1000, 1000 },
		"unknown elements": func(s *Shape) { s.Page.K = 99 },
	} {
		s := testShape()
		if change(&s); s.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestBlocks: a block is 4 bytes a token, carries positions beyond 65,535 relative to its base, and scores of half
// precision exactly.
func TestBlocks(t *testing.T) {
	pos, scores := []int32{70000, 70001, 135535}, []float32{-65504, 0.5, 3.0517578e-05}
	b := AppendBlock(nil, pos, scores)
	if len(b) != 8+BlockBytes(3) || BlockBytes(3) != 12 {
		t.Errorf("%d bytes", len(b))
	}
	n := 0
	last, err := ParseScores(append(b, AppendBlock(nil, []int32{200000}, []float32{1})...), -1, 1<<20, &Block{}, func(x *Block) error {
		if n++; n == 1 && (!reflect.DeepEqual(x.Positions, pos) || !reflect.DeepEqual(x.Scores, scores)) {
			t.Errorf("%+v", x)
		}
		return nil
	})
	if err != nil || last != 200000 || n != 2 {
		t.Errorf("%d blocks up to %d: %v", n, last, err)
	}
	if _, err := ParseScores(AppendBlock(nil, pos[:1], []float32{float32(math.NaN())}), -1, 1<<20, &Block{}, nil); !errors.Is(err, ErrFrame) {
		t.Errorf("not a number: %v", err)
	}
}

// FuzzFrame reads arbitrary bytes as frames and as every message: an error or a value, never a panic, and what is accepted
// is written back as it came.
func FuzzFrame(f *testing.F) {
	for _, m := range messages() {
		h := Header{Type: TypeWrite, ID: 1, Length: len(m.bytes), Sum: Checksum(0, m.bytes)}
		f.Add(append(h.Append(nil), m.bytes...))
		f.Add(m.bytes)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		if h, err := ReadHeader(r); err == nil {
			if h.Length > maxPayloadBytes {
				t.Fatalf("%+v", h)
			}
			_ = ReadPayload(r, h, make([]byte, h.Length))
		}
		for name, m := range messages() {
			if name == "welcome" || name == "open" || name == "shape" {
				_, _ = m.parse(b) // floats may be NaN, booleans other than 1
				continue
			}
			v, err := m.parse(b)
			if err != nil || name == "write" {
				continue
			}
			if a, ok := v.(interface{ Append([]byte) []byte }); ok && !bytes.Equal(a.Append(nil), b) {
				t.Fatalf("%s: %x is written back as %x", name, b, a.Append(nil))
			}
		}
		_, _ = ParseScores(b, -1, 1<<20, &Block{}, func(*Block) error { return nil })
		_, _, _ = ParseTiming(b)
	})
}
