package vocab

import "encoding/binary"

// field is one field of a protobuf message: value for numbers of any width,
// bytes (a slice of the input) for length-delimited ones.
type field struct {
	number int
	value  uint64
	bytes  []byte
}

// eachField walks a protobuf message in its wire format. Every length is
// compared with what is left; groups, which nothing here uses, are refused.
func eachField(data []byte, visit func(f field) error) error {
	total := len(data)
	short := func() error { return bad("protobuf: truncated at byte %d", total-len(data)) }
	varint := func() (uint64, bool) {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			return 0, false
		}
		data = data[n:]
		return v, true
	}
	for len(data) > 0 {
		tag, ok := varint()
		if !ok {
			return short()
		}
		if tag>>3 == 0 || tag>>3 > 1<<29 {
			return bad("protobuf: field number %d at byte %d", tag>>3, total-len(data))
		}
		f := field{number: int(tag >> 3)}
		switch tag & 7 {
		case 0:
			if f.value, ok = varint(); !ok {
				return short()
			}
		case 1:
			if len(data) < 8 {
				return short()
			}
			f.value, data = binary.LittleEndian.Uint64(data), data[8:]
		case 2:
			n, ok := varint()
			if !ok || n > uint64(len(data)) {
				return short()
			}
			f.bytes, data = data[:n], data[n:]
		case 5:
			if len(data) < 4 {
				return short()
			}
			f.value, data = uint64(binary.LittleEndian.Uint32(data)), data[4:]
		default:
			return bad("protobuf: wire type %d at byte %d", tag&7, total-len(data))
		}
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}
