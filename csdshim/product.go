package csdshim

import (
	"terrace/csdshim/wire"
	"terrace/internal/kernels"
)

// Product codes (CodesProduct): each two numbers of a key are coded by the nearest of 16 centroids, which the host has found among
// the prompt's keys. The drive codes the keys that it stores and scores by looking products up, a byte a time: a quarter of a
// byte a number is scanned, half of what int4 takes.

// putPairs writes the codes of one key [dim] as token t of a tile; centroids are [dim/2][16][2].
func putPairs(tile []byte, t int, key, centroids []float32) {
	const each = 2 * wire.PairCentroids
	for m := range len(key) / 4 {
		low := nearestPair(key[4*m], key[4*m+1], centroids[2*m*each:][:each])
		high := nearestPair(key[4*m+2], key[4*m+3], centroids[(2*m+1)*each:][:each])
		tile[m*wire.GroupTokens+t] = low | high<<4
	}
}

// nearestPair is the number of the centroid nearest to (x, y), by squared distance in float64, the lowest where several are.
func nearestPair(x, y float32, centroids []float32) (at byte) {
	var least float64
	for j := range len(centroids) / 2 {
		dx, dy := float64(x)-float64(centroids[2*j]), float64(y)-float64(centroids[2*j+1])
		if d := dx*dx + dy*dy; j == 0 || d < least {
			least, at = d, byte(j)
		}
	}
	return at
}

// pairTables fills e.tables [KVHeads][KeyDim/4][256] with the query's products by the byte that holds two codes.
func (e *scoring) pairTables(shape Shape, centroids []float32) {
	const each = 2 * wire.PairCentroids
	width := shape.Width()
	if need := width / 4 * 256; cap(e.tables) < need {
		e.tables = make([]float32, need)
	}
	e.tables = e.tables[:width/4*256]
	var dots [2 * wire.PairCentroids]float32
	for m := range width / 4 {
		for j := range dots {
			pair := 2*m + j/wire.PairCentroids
			dots[j] = kernels.Dot(e.query[2*pair:2*pair+2], centroids[pair*each+j%wire.PairCentroids*2:][:2])
		}
		table := e.tables[m*256 : (m+1)*256]
		for code := range table {
			table[code] = dots[code&15] + dots[wire.PairCentroids+code>>4]
		}
	}
}

// pairs scores product codes: float32 sums of each KV head, byte by byte, added in the heads' order.
func (e *scoring) pairs(shape Shape, tiles []tile, floats []float32) {
	size, lanes := shape.CodeTileBytes(), shape.Page.KeyDim/4
	clear(floats)
	for i, t := range tiles {
		out := floats[i*wire.GroupTokens : (i+1)*wire.GroupTokens]
		for g := range shape.KVHeads {
			codes, tables := t.codes[g*size:(g+1)*size], e.tables[g*lanes*256:]
			for k := range out {
				sum := tables[codes[k]]
				for m := 1; m < lanes; m++ {
					sum += tables[m*256+int(codes[m*wire.GroupTokens+k])]
				}
				out[k] += sum
			}
		}
	}
}
