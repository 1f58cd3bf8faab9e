package wire

import (
	"encoding/binary"
	"hash/crc32"
	"io"
)

// Version of the protocol. Magic and version keep their place in every version, so that a wrong one can be named.
const Version = 5

const (
	// HeaderBytes is the size of a frame's header.
	HeaderBytes = 32
	// maxPayloadBytes is the most that a frame may carry.
	maxPayloadBytes = 8 << 20
	magic           = "TCSD"
	// ShareUnit is what places in shared memory are multiples of.
	ShareUnit = 4096
	// MaxShareBytes is the most memory that a connection may share.
	MaxShareBytes = 64 << 20
)

// Type says what a frame carries.
type Type uint8

// The frames, and who sends them.
const (
	TypeHello      Type = iota + 1 // client: Hello
	TypeWelcome                    // drive: Identity
	TypeError                      // drive: Failure
	TypeDone                       // drive: Timing, then what the request returns
	TypeOpen                       // client: Open; Done carries nothing more
	TypeWrite                      // client: Write
	TypeScore                      // client: Score; Scores frames, then Done
	TypeScores                     // drive: score blocks
	TypeFetch                      // client: Fetch; Data frames or bytes in shared memory, then Done
	TypeData                       // drive: bytes of the reply from Header.At on
	TypeGather                     // client: Gather; as Fetch
	TypePromote                    // client: Place; the tokens are hot: the host scores them
	TypeDemote                     // client: Place; the tokens are cold: the drive scores them
	TypeDrop                       // client: Drop
	TypeStats                      // client; Done carries Stats
	TypeCancel                     // client: ends the request with the frame's id; no reply of its own
	TypeBye                        // client: drops what it leased; Done
	TypeScales                     // client: Scales; from now on the layer can be scored
	TypeOpenAttend                 // client: OpenAttend; Done carries nothing more
	TypeAppend                     // client: Tail; Done carries Attended without an output
	TypeAttend                     // client: Attend; Done carries Attended
	TypeScoreMany                  // client: ScoreMany; Scores frames, and an Answered for each question, then Done
	TypeAnswered                   // drive: Answered; question Header.At of a TypeScoreMany has its outcome, and no Scores follow for it
	typeEnd
)

var typeNames = [...]string{"?", "hello", "welcome", "error", "done", "open", "write", "score", "scores", "fetch", "data", "gather", "promote", "demote", "drop", "stats", "cancel", "bye", "scales", "open_attend", "append", "attend", "score_many", "answered"}

// String is the frame's name in messages and statistics.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return "?"
}

// Header stands in front of a payload.
//
// Bytes: magic "TCSD"; u8 version; u8 type; u16 zero; u64 id; u32 payload bytes; u32 At; u32 CRC-32C of the payload;
// u32 CRC-32C of the 28 bytes before.
type Header struct {
	Type   Type
	ID     uint64
	Length int // bytes of the payload
	// At is, in TypeData, the place of the payload in the reply; in TypeScores and TypeAnswered which question of a TypeScoreMany it is
	// about, from 0; in TypeFetch and TypeGather, where the reply goes in the memory of the
	// hello, in units of ShareUnit counted from 1: no Data frames then. 0 = Data frames.
	At  uint32
	Sum uint32 // CRC-32C of the payload
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum continues a CRC-32C; start with 0.
func Checksum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// Append adds the header's bytes to dst.
func (h Header) Append(dst []byte) []byte {
	from := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, Version, byte(h.Type), 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, h.ID)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.Length))
	dst = binary.LittleEndian.AppendUint32(dst, h.At)
	dst = binary.LittleEndian.AppendUint32(dst, h.Sum)
	return binary.LittleEndian.AppendUint32(dst, Checksum(0, dst[from:]))
}

// parseHeader reads a header of HeaderBytes. A wrong version is a *versionError, everything else wraps ErrFrame.
func parseHeader(b []byte) (h Header, err error) {
	if len(b) != HeaderBytes || string(b[:4]) != magic {
		return h, malformed("header of %d bytes does not begin with %s", len(b), magic)
	}
	if b[4] != Version {
		return h, &versionError{Got: b[4]}
	}
	le := binary.LittleEndian
	if got, want := le.Uint32(b[28:]), Checksum(0, b[:28]); got != want {
		return h, malformed("header checksum %08x, want %08x", got, want)
	}
	h = Header{Type: Type(b[5]), ID: le.Uint64(b[8:]), At: le.Uint32(b[20:]), Sum: le.Uint32(b[24:])}
	n := le.Uint32(b[16:])
	switch {
	case h.Type == 0 || h.Type >= typeEnd:
		return h, malformed("frame type %d", b[5])
	case n > maxPayloadBytes:
		return h, malformed("%v frame of %d bytes, at most %d are allowed", h.Type, n, maxPayloadBytes)
	case b[6] != 0 || b[7] != 0:
		return h, malformed("%v frame with reserved bits set", h.Type)
	}
	h.Length = int(n)
	return h, nil
}

// ReadHeader reads a frame's header. io.EOF means that the other side ended between two frames.
func ReadHeader(r io.Reader) (Header, error) {
	var b [HeaderBytes]byte
	if n, err := io.ReadFull(r, b[:]); err != nil {
		if err == io.ErrUnexpectedEOF {
			return Header{}, malformed("connection ended after %d of %d header bytes", n, HeaderBytes)
		}
		return Header{}, err
	}
	return parseHeader(b[:])
}

// ReadPayload reads h's payload into dst, which has h.Length bytes, and checks it.
func ReadPayload(r io.Reader, h Header, dst []byte) error {
	if n, err := io.ReadFull(r, dst); err != nil {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return malformed("connection ended after %d of %d bytes of a %v frame", n, h.Length, h.Type)
		}
		return err
	}
	if got := Checksum(0, dst); got != h.Sum {
		return malformed("%v frame: payload checksum %08x, want %08x", h.Type, got, h.Sum)
	}
	return nil
}
