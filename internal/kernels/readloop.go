package kernels

import (
	"runtime"
	"unsafe"
)

// readPiece is what a task of ReadOnce reads.
const readPiece = 256 << 10

// ReadOnce reads all bytes that a product of each matrix reads once, with the pool's threads and without computing: the packed
// tiles where the matrix is packed, the bytes that it was made from elsewhere. It returns how many bytes that were. Its time is
// the least that one step of decoding with these matrices can take from memory.
func (p *Pool) ReadOnce(list []*Matrix) (bytes int64) {
	var pieces [][]byte
	for _, m := range list {
		b := m.data
		if tiles := m.packed.Load(); tiles != nil {
			b = unsafe.Slice(tiles, m.packedBytes())
		}
		bytes += int64(len(b))
		for len(b) > readPiece {
			pieces, b = append(pieces, b[:readPiece]), b[readPiece:]
		}
		pieces = append(pieces, b)
	}
	sums := make([]uint64, p.threads*8) // a cache line a worker
	p.Run(len(pieces), func(worker, i int) { sums[worker*8] ^= readWords(pieces[i]) })
	runtime.KeepAlive(list) // packed tiles go with their matrix
	return bytes
}

// readWords loads every whole word of b, eight at a time.
func readWords(b []byte) (sum uint64) {
	words := unsafe.Slice((*[8]uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/64)
	for i := range words {
		w := &words[i]
		sum ^= w[0] ^ w[1] ^ w[2] ^ w[3] ^ w[4] ^ w[5] ^ w[6] ^ w[7]
	}
	for _, c := range b[len(words)*64:] {
		sum ^= uint64(c)
	}
	return sum
}
