package kvmanager

import (
	"encoding/binary"
	"math"
)

// appendFloats appends numbers to bytes, little-endian.
func appendFloats(data []byte, x []float32) []byte {
	for _, v := range x {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// readFloats is the inverse.
func readFloats(dst []float32, data []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
}
