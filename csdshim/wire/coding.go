package wire

import (
	"encoding/binary"
	"math"
)

// encoder appends numbers.
type encoder struct{ b []byte }

func (e *encoder) u8(v uint8)     { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16)   { e.b = binary.LittleEndian.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32)   { e.b = binary.LittleEndian.AppendUint32(e.b, v) }
func (e *encoder) u64(v uint64)   { e.b = binary.LittleEndian.AppendUint64(e.b, v) }
func (e *encoder) bytes(v []byte) { e.b = append(e.b, v...) }
func (e *encoder) text(v string) {
	v = v[:min(len(v), maxText)]
	e.u16(uint16(len(v)))
	e.b = append(e.b, v...)
}
func (e *encoder) int32s(v []int32) {
	e.u32(uint32(len(v)))
	for _, x := range v {
		e.u32(uint32(x))
	}
}

func (e *encoder) float32s(v []float32) {
	e.u32(uint32(len(v)))
	for _, x := range v {
		e.u32(math.Float32bits(x))
	}
}

const maxText = 1 << 10

// decoder takes numbers off the front; the first short read makes every later one zero and is remembered.
type decoder struct {
	b      []byte
	failed bool
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.failed, d.b = true, nil
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() uint8 {
	if v := d.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if v := d.take(2); v != nil {
		return binary.LittleEndian.Uint16(v)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if v := d.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if v := d.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

// index is a number that must fit an int32.
func (d *decoder) index() int {
	v := d.u32()
	if v > 1<<31-1 {
		d.failed = true
		return 0
	}
	return int(v)
}

func (d *decoder) text() string {
	n := int(d.u16())
	if n > maxText {
		d.failed = true
		return ""
	}
	return string(d.take(n))
}

func (d *decoder) int32s() []int32 {
	n := d.index()
	raw := d.take(4 * n)
	if raw == nil {
		return nil
	}
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
		if v[i] < 0 {
			d.failed = true
		}
	}
	return v
}

func (d *decoder) float32s() []float32 {
	n := d.index()
	raw := d.take(4 * n)
	if raw == nil {
		return nil
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return v
}

// end is the error of the whole: everything must have been there, and nothing more.
func (d *decoder) end(what string) error {
	if d.failed {
		return malformed("%s is cut short or out of range", what)
	}
	if len(d.b) != 0 {
		return malformed("%s has %d bytes too many", what, len(d.b))
	}
	return nil
}
