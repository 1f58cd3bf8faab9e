package kernels

import (
	"encoding/binary"
	"math"

	"terrace/internal/kernels/quant"
)

// A packed matrix is a row of tiles, tile i with weight rows 16*i..16*i+15 (rows past the end are zero). A tile of a
// quantised type is a row of records of 32 columns, in front of every 8 records of a type with super-blocks a header:
//
//	header: 16 float16 super-scales, then (types with minima) 16 float16 super-minima
//	record: bit planes of bits*64 bytes, then the record's scales, 16 of each kind
//
// Planes hold the integer weights so that one dword of a row holds the same bits of 4 neighbouring columns, columns
// 4g..4g+3 being group g: nibbles (4 vectors of 64 bytes: vector i has group i low, group i+4 high), then one bit each
// (bit g of every byte: group g), or pairs of bits (2 vectors: vector p has group 4p+i at bit 2i), or whole bytes (8
// vectors). The bytes a weight are those of the ggml type, or up to 3 % more where 6-bit scales become bytes.
// Nothing is rounded. The coded types (IQ1 to IQ3, ternary) have a code of their level in 3, 4 or 2 bits instead of their grids' numbers
// (packed_coded.go says what that costs). Why this order: a load brings the same columns of 16 rows, so that sums stay in vertical lanes
// (VPDPBUSD adds 4 products a lane) and no kernel ever adds across a register; memory is read once, in rising order.
// F8_E4M3 records are 32 columns of 16 codes, then 16 float32 scales. Float types are packed as [column][16 rows] in their own element type,
// BF16 on amd64 as [pair of columns][16 rows][2], which are B tiles of AMX.
type tileFormat struct {
	headerBytes, recordBytes int
	records                  int // a call of pack: 1, 2 of NVFP4, or 8 for types with super-blocks
	blockBytes               int // of the ggml type, the same span
	pack                     func(dst []byte, r int, src []byte)
}

var tileFormats = map[quant.Type]*tileFormat{
	quant.Q4_0:   {0, 256 + 32, 1, 18, packQ4_0},
	quant.Q4_1:   {0, 256 + 64, 1, 20, packQ4_1},
	quant.Q5_0:   {0, 320 + 32, 1, 22, packQ5_0},
	quant.Q5_1:   {0, 320 + 64, 1, 24, packQ5_1},
	quant.Q8_0:   {0, 512 + 32, 1, 34, packQ8_0},
	quant.Q2_K:   {64, 128 + 32, 8, 84, packQ2K},
	quant.Q3_K:   {32, 192 + 32, 8, 110, packQ3K},
	quant.Q4_K:   {64, 256 + 32, 8, 144, packQ4K},
	quant.Q5_K:   {64, 320 + 32, 8, 176, packQ5K},
	quant.Q6_K:   {32, 384 + 32, 8, 210, packQ6K},
	quant.IQ4_NL: {0, 256 + 32, 1, 18, packQ4_0},
	quant.IQ4_XS: {32, 256 + 16, 8, 136, packIQ4XS},
	quant.MXFP4:  {0, 256 + 16, 1, 17, packMXFP4},
	quant.NVFP4:  {0, 256 + 64, 2, 36, packNVFP4},

	quant.NVFP4_F32: {0, 256 + 128, 1, 24, packNVFP4F32},
	quant.F8_E4M3:   {0, 512 + 64, 1, 36, packF8},

	quant.IQ1_S:   {32, 192 + 32, 8, 50, packTriples(quant.IQ1_S)},
	quant.IQ1_M:   {32, 192 + 32, 8, 56, packTriples(quant.IQ1_M)},
	quant.IQ2_XXS: {32, 192 + 16, 8, 66, packIQ2XXS},
	quant.IQ2_XS:  {32, 192 + 32, 8, 74, packTriples(quant.IQ2_XS)},
	quant.IQ2_S:   {32, 192 + 32, 8, 82, packTriples(quant.IQ2_S)},
	quant.IQ3_XXS: {32, 256 + 16, 8, 98, packIQ3(quant.IQ3_XXS)},
	quant.IQ3_S:   {32, 256 + 16, 8, 110, packIQ3(quant.IQ3_S)},
	quant.TQ1_0:   {32, 128 + 16, 8, 54, packTernary(quant.TQ1_0)},
	quant.TQ2_0:   {32, 128 + 16, 8, 66, packTernary(quant.TQ2_0)},
}

// PackedGrowth is how many bytes more than its blocks a matrix takes once it is packed into tiles, on paths that pack. Below a
// sixteenth it is 0: the 3 % that tiles of some types add are within what an estimate of memory is off by.
func PackedGrowth(t quant.Type, rows, cols int) int64 {
	if simd == nil || !t.Known() || cols%t.BlockLen() != 0 {
		return 0
	}
	blocks := int64(rows) * int64(t.RowBytes(cols))
	if n := int64(tilesOf(rows))*int64(tileBytes(t, cols)) - blocks; n > blocks/16 && rows >= tileRows {
		return n
	}
	return 0
}

// recordCols is the number of columns of a record, and of a block of activations.
const recordCols = 32

// tileBytes is the size of a packed tile.
func tileBytes(t quant.Type, cols int) int {
	f := tileFormats[t]
	if f == nil {
		if t == quant.BF16 {
			cols += cols & 1 // pairs
		}
		return cols * tileRows * t.BlockBytes()
	}
	return f.spanBytes() * (cols / (f.records * recordCols))
}

func (f *tileFormat) spanBytes() int { return f.headerBytes + f.records*f.recordBytes }

// packTile packs weight rows row0.. of m into dst, a zeroed tile.
func (m *Matrix) packTile(dst []byte, row0 int) {
	if m.packTileSIMD(dst, row0) {
		return
	}
	f := tileFormats[m.typ]
	for r := range min(tileRows, m.rows-row0) {
		row := m.data[(row0+r)*m.rowBytes : (row0+r+1)*m.rowBytes]
		if m.typ == quant.BF16 && pairedBF16 {
			packPairs(dst, r, row)
			continue
		}
		if f == nil {
			packFloats(dst, r, row, m.typ.BlockBytes())
			continue
		}
		span := f.spanBytes()
		for b := 0; (b+1)*f.blockBytes <= len(row); b++ {
			f.pack(dst[b*span:(b+1)*span], r, row[b*f.blockBytes:(b+1)*f.blockBytes])
		}
	}
}

// packTileSIMD is packTile where the selected path has a kernel for it: whole tiles, whole blocks (float types two
// columns at a time), and rows near enough for 32-bit offsets.
func (m *Matrix) packTileSIMD(dst []byte, row0 int) bool {
	if simd == nil || simd.pack[m.typ] == nil || row0+tileRows > m.rows || m.rowBytes > math.MaxInt32/tileRows {
		return false
	}
	blockBytes := m.typ.BlockBytes()
	if m.typ.BlockLen() == 1 {
		blockBytes = 4
	}
	if m.rowBytes%blockBytes != 0 {
		return false
	}
	simd.pack[m.typ](&dst[0], &m.data[row0*m.rowBytes], uintptr(m.rowBytes), m.rowBytes/blockBytes)
	return true
}

func packFloats(dst []byte, r int, row []byte, elemBytes int) {
	if elemBytes == 4 {
		for k := range len(row) / 4 {
			put32(dst[k*64+4*r:], get32(row[k*4:]))
		}
		return
	}
	for k := range len(row) / 2 {
		put16(dst[k*32+2*r:], get16(row[k*2:]))
	}
}

// packPairs packs a row of BF16 as [pair of columns][16 rows][2].
func packPairs(dst []byte, r int, row []byte) {
	for k := range len(row) / 2 {
		put16(dst[k/2*64+4*r+k%2*2:], get16(row[k*2:]))
	}
}

func get16(b []byte) uint16    { return binary.LittleEndian.Uint16(b) }
func get32(b []byte) uint32    { return binary.LittleEndian.Uint32(b) }
func put16(b []byte, v uint16) { binary.LittleEndian.PutUint16(b, v) }
func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }

// packNibbles copies 16 bytes of nibbles (low: columns 0..15, high: 16..31), which already have the tile's pairing.
func packNibbles(dst []byte, r int, qs []byte) {
	_, _ = dst[255], qs[15]
	put32(dst[4*r:], get32(qs))
	put32(dst[64+4*r:], get32(qs[4:]))
	put32(dst[128+4*r:], get32(qs[8:]))
	put32(dst[192+4*r:], get32(qs[12:]))
}

func packQ4_0(dst []byte, r int, b []byte) {
	packNibbles(dst, r, b[2:])
	put16(dst[256+2*r:], get16(b))
}

func packQ4_1(dst []byte, r int, b []byte) {
	packNibbles(dst, r, b[4:])
	put16(dst[256+2*r:], get16(b))
	put16(dst[288+2*r:], get16(b[2:]))
}

func packQ5_0(dst []byte, r int, b []byte) {
	packNibbles(dst, r, b[6:])
	put32(dst[256+4*r:], fifthBits(get32(b[2:])))
	put16(dst[320+2*r:], get16(b))
}

func packQ5_1(dst []byte, r int, b []byte) {
	packNibbles(dst, r, b[8:])
	put32(dst[256+4*r:], fifthBits(get32(b[4:])))
	put16(dst[320+2*r:], get16(b))
	put16(dst[352+2*r:], get16(b[2:]))
}

// fifthBits moves bit 4g+j (column 4g+j) to bit g of byte j.
func fifthBits(qh uint32) uint32 {
	var out uint32
	for j := range 4 {
		x := qh >> j & 0x11111111
		x = (x | x>>3) & 0x03030303
		x = (x | x>>6) & 0x000F000F
		out |= (x | x>>12) & 0xFF << (8 * j)
	}
	return out
}

func packQ8_0(dst []byte, r int, b []byte) {
	_, _ = dst[543], b[33]
	for g := range 8 {
		put32(dst[64*g+4*r:], get32(b[2+4*g:]))
	}
	put16(dst[512+2*r:], get16(b))
}

func packMXFP4(dst []byte, r int, b []byte) {
	packNibbles(dst, r, b[1:])
	dst[256+r] = max(b[0], 1) - 1 // 2^(e-128) as the exponent of a float32; 2^-128 becomes 0
}
