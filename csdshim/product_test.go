package csdshim_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/x448/float16"

	"terrace/attention/keyindex"
	"terrace/csdshim"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// pairScore is the definition of a token's score by product codes: of each two numbers of a key the nearest centroid, the lowest where
// several are, found by trying all; the query's products with it, two pairs first, then one after another, then the heads.
func pairScore(q, centroids []float32, key []float32) (sum float32) {
	for g := range selKVHeads {
		var head float32
		for m := 0; m < selDim/2; m += 2 {
			var both float32
			for p := m; p < m+2; p++ {
				at, least := 0, 0.0
				c := centroids[(g*selDim/2+p)*32:][:32]
				for j := range 16 {
					x, y := float64(key[g*selDim+2*p])-float64(c[2*j]), float64(key[g*selDim+2*p+1])-float64(c[2*j+1])
					if d := x*x + y*y; j == 0 || d < least {
						at, least = j, d
					}
				}
				both += kernels.Dot(q[g*selDim+2*p:][:2], c[2*at:2*at+2])
			}
			head += both
		}
		sum += head
	}
	return kernels.RoundHalf(sum)
}

// TestProductCodes: the drive scores product codes as they are defined and as the host's index does, bit for bit, from its
// memory and from flash; it scans a quarter of a byte a number.
func TestProductCodes(t *testing.T) {
	rng, page := rand.New(rand.NewPCG(3, 4)), selShape(csdshim.CodesNone).Page
	keys := make([][]float32, selTokens)
	records := make([][]byte, selTokens/16)
	for i := range keys {
		if i%16 == 0 {
			records[i/16] = make([]byte, selKVHeads*page.PageBytes())
		}
		for range selKVHeads * selDim {
			keys[i] = append(keys[i], float16.Fromfloat32(float32(rng.NormFloat64())).Float32())
		}
		for g := range selKVHeads {
			kvpage.PutK(page, records[i/16][g*page.PageBytes():(g+1)*page.PageBytes()], i%16, keys[i][g*selDim:(g+1)*selDim])
		}
	}
	var centroids []float32
	host := make([]*keyindex.Product, selKVHeads)
	for g := range host {
		var all []float32
		for _, k := range keys {
			all = append(all, k[g*selDim:(g+1)*selDim]...)
		}
		host[g] = keyindex.NewProduct(selDim, selDim/2, 4, 4)
		host[g].Train(all, selTokens)
		host[g].Put(all, selTokens)
		centroids = append(centroids, host[g].Centroids()...)
	}
	q := make([]float32, selKVHeads*selDim)
	for i := range q {
		q[i] = kernels.RoundHalf(float32(rng.NormFloat64()))
	}
	own, part := make([]float32, selTokens), make([]float32, selTokens)
	for g := range host {
		host[g].Score(part, q[g*selDim:(g+1)*selDim], 1)
		for i := range own {
			own[i] += part[i]
		}
	}
	for _, place := range []csdshim.KeyPlace{csdshim.KeysDDR, csdshim.KeysNAND} {
		s := driveWith(t, csdshim.CodesProduct, place, records, centroids)
		n := 0
		query := &csdshim.Query{Codes: csdshim.CodesProduct, Float: q, Block: 64}
		timing, err := s.Score(context.Background(), 1, 0, query, func(b *csdshim.Block, _ time.Duration) error {
			for i, at := range b.Positions {
				want := pairScore(q, centroids, keys[at])
				if b.Scores[i] != want || kernels.RoundHalf(own[at]) != want {
					t.Fatalf("%v: token %d: the drive's score is %v, the host's %v, want %v", place, at, b.Scores[i], kernels.RoundHalf(own[at]), want)
				}
				n++
			}
			return nil
		})
		if err != nil || n != selTokens || timing.ScanBytes != selTokens*selKVHeads*selDim/4 {
			t.Errorf("%v: %d tokens, %d bytes scanned, %v", place, n, timing.ScanBytes, err)
		}
		if _, err := s.SetScales(context.Background(), 1, 0, centroids[1:]); err == nil {
			t.Error("one number too few was taken for centroids")
		}
	}
}
