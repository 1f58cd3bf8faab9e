package csdshim_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/x448/float16"

	"terrace/attention/keyindex"
	"terrace/csdshim"
	"terrace/csdshim/profiles"
	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
	"terrace/policy"
)

const (
	selTokens  = 640
	selHeads   = 6
	selKVHeads = 3
	selDim     = 64
)

// hostScorer is the host's side: kvmanager's sketches and the products that engine computes from them.
type hostScorer struct {
	policy.Scorer
	halves []*keyindex.Columns
	codes  []*keyindex.Codes
	scales [][]float32
}

func (h *hostScorer) KeyScales(g int, dst []float32) { copy(dst, h.scales[g]) }

func (h *hostScorer) Products(g int, q []int8, dst []int32) {
	h.codes[g].Products(dst, q)
}

func (h *hostScorer) Approx(g int, q []float32, rows int, dst []float32) {
	h.halves[g].Score(dst, q, rows)
}

// kinds are the precisions that policy hillinfer scores in, on the host and on the drive.
var kinds = map[string]struct {
	elem  kvpage.Elem
	codes csdshim.Codes
	most  float32
}{"int8": {kvpage.I8, csdshim.CodesInt8, 127}, "int4": {kvpage.I4, csdshim.CodesInt4, 7}, "fp16": {kvpage.F16, csdshim.CodesHalf, 0}}

// TestSelectionEqualsTheHosts: policy hillinfer picks the same tokens whether it scores them itself or is given the drive's
// scores, bit for bit the same numbers, in every precision, with keys in DRAM and on flash.
func TestSelectionEqualsTheHosts(t *testing.T) {
	for name, kind := range kinds {
		for _, keys := range []csdshim.KeyPlace{csdshim.KeysDDR, csdshim.KeysNAND} {
			t.Run(fmt.Sprintf("%s/%v", name, keys), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(5, uint64(kind.elem)))
				host, records := encode(rng, kind.elem, kind.most)
				spec, err := policy.Parse("hillinfer:alpha=0.1,query=exact,score=" + name)
				if err != nil {
					t.Fatal(err)
				}
				set, err := spec.New(policy.Model{Layers: cacheshape.Equal(1, selHeads, cacheshape.KV{Heads: selKVHeads, KeyDim: selDim, ValueDim: selDim})})
				if err != nil {
					t.Fatal(err)
				}
				p := set.Selector.(policy.TokenScoring)
				drive := driveWith(t, kind.codes, keys, records, slices.Concat(host.scales...))
				for range 5 {
					l := layer(rng, host)
					k, below, _ := p.Wanted(l)
					var merged policy.Merger
					merged.Reset(k)
					var q policy.TokenQuery
					if !p.Question(l, &q) {
						t.Fatal("the policy does not let the drive score")
					}
					n := 0
					query := &csdshim.Query{Codes: kind.codes, Int8: q.Int8, Shift: q.Shift, Block: p.BlockLen(), Limit: below}
					if kind.codes == csdshim.CodesHalf {
						query.Float, query.Int8 = q.Float, nil
					}
					if _, err := drive.Score(context.Background(), 1, 0, query, func(b *csdshim.Block, _ time.Duration) error {
						n += len(b.Positions)
						merged.Add(b.Positions, b.Scores)
						return nil
					}); err != nil || n != below {
						t.Fatal(n, err)
					}
					var own, driven policy.Selection
					p.Select(l, &own)
					p.Accept(l, merged.Best(nil), &driven)
					if len(own.Heads[0]) < selTokens/10 || !slices.EqualFunc(own.Heads, driven.Heads, slices.Equal[[]int32]) {
						t.Fatalf("the host picks %v,\nwith the drive's scores %v", own.Heads[0], driven.Heads[0])
					}
				}
			})
		}
	}
}

// encode makes random keys, and from them the host's sketches and the records that are written to the drive.
func encode(rng *rand.Rand, elem kvpage.Elem, most float32) (*hostScorer, [][]byte) {
	h := &hostScorer{}
	l := selShape(csdshim.CodesNone).Page
	size := l.PageBytes()
	records := make([][]byte, selTokens/16)
	for g := range selKVHeads {
		half, ints8, scale := keyindex.NewColumns(kvpage.F16, selDim), keyindex.NewCodes(elem, selDim), make([]float32, 1)
		if elem == kvpage.I4 {
			scale = make([]float32, selDim)
		}
		for i := range scale {
			scale[i] = (0.5 + rng.Float32()) / max(most, 1) * 3
		}
		for t := range selTokens {
			if t%16 == 0 {
				records[t/16] = append(records[t/16], make([]byte, size)...)
			}
			page := records[t/16][g*size : (g+1)*size]
			key, ints := make([]float32, selDim), make([]int8, selDim)
			for d := range key {
				key[d] = float16.Fromfloat32(float32(rng.NormFloat64())).Float32() // as the cache holds it
				ints[d] = int8(max(-most, min(most, float32(math.RoundToEven(float64(key[d]/scale[d%len(scale)]))))))
			}
			kvpage.PutK(l, page, t%16, key)
			if most == 0 {
				half.Put(t, key)
				continue
			}
			ints8.Put(t, ints)
		}
		h.halves, h.codes, h.scales = append(h.halves, half), append(h.codes, ints8), append(h.scales, scale)
	}
	return h, records
}

func selShape(codes csdshim.Codes) csdshim.Shape {
	return csdshim.Shape{Layers: 1, KVHeads: selKVHeads, Codes: codes, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: selDim, ValueDim: selDim, Tokens: 16, TokenMajor: true}}
}

// layer is what the policy sees: a random query.
func layer(rng *rand.Rand, h *hostScorer) *policy.Layer {
	pos := make([]int32, selTokens)
	for i := range pos {
		pos[i] = int32(i)
	}
	l := &policy.Layer{Layers: 1, Heads: selHeads, KVHeads: selKVHeads, KeyDim: selDim, ValueDim: selDim, N: selTokens, Prompt: selTokens, Scores: h, Rows: 1}
	for range selKVHeads {
		l.Pos = append(l.Pos, pos)
	}
	for range selHeads * selDim {
		l.Queries = append(l.Queries, float32(rng.NormFloat64()))
	}
	return l
}

// driveWith is a session on a drive that holds the records and knows the scales.
func driveWith(t *testing.T, kind csdshim.Codes, keys csdshim.KeyPlace, records [][]byte, scales []float32) *csdshim.Session {
	t.Helper()
	p, err := profiles.Load("unlimited")
	if err != nil {
		t.Fatal(err)
	}
	d, err := csdshim.OpenDrive(t.TempDir(), csdshim.Options{Profile: p, CapacityBytes: 8 << 20, Keys: keys, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	s := d.Connect([16]byte{1}, 0)
	if err := s.OpenSequence(1, selShape(kind)); err != nil {
		t.Fatal(err)
	}
	var groups []csdshim.Group
	for g, r := range records {
		groups = append(groups, csdshim.Group{Index: g, Data: r})
	}
	if _, err := s.Write(context.Background(), 1, groups); err != nil {
		t.Fatal(err)
	}
	if kind != csdshim.CodesHalf {
		if _, err := s.SetScales(context.Background(), 1, 0, scales); err != nil {
			t.Fatal(err)
		}
	}
	return s
}
