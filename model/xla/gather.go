package xla

import (
	"terrace/attention"
)

// gathered are the keys and values of one sequence and layer, read from its views into the shapes of the program and padded
// to a bucket of tokens.
type gathered struct {
	bucket int
	dk, dv int
	k      []float32 // [G, bucket, dk]
	v      []float32 // [G, bucket, dv]
	pos    []int32   // [G, bucket], noKey where there is none
}

func (b *backend) newGathered(layer, bucket int) *gathered {
	a := &b.m.Layer[layer].Attention
	t := &gathered{bucket: bucket, k: make([]float32, a.KVHeads*bucket*a.KeyDim), v: make([]float32, a.KVHeads*bucket*a.ValDim),
		pos: make([]int32, a.KVHeads*bucket), dk: a.KeyDim, dv: a.ValDim}
	for i := range t.pos {
		t.pos[i] = noKey
	}
	return t
}

// gatherPicks reads the chosen tokens of each view; all of them where picks are nil.
func (b *backend) gatherPicks(layer int, views []attention.View, picks [][]int32, bucket int) *gathered {
	t := b.newGathered(layer, bucket)
	for g := range views {
		if picks == nil || picks[g] == nil {
			t.readRun(&b.reader, g, 0, &views[g], 0, views[g].Tokens())
			continue
		}
		for at, list := 0, picks[g]; at < len(list); {
			end := at + 1
			for end < len(list) && list[end] == list[end-1]+1 {
				end++
			}
			t.readRun(&b.reader, g, at, &views[g], int(list[at]), int(list[end-1])+1)
			at = end
		}
	}
	return t
}

// readRun reads the tokens from..to-1 of a view into a head's slots from slot on.
func (t *gathered) readRun(r *attention.Reader, g, slot int, v *attention.View, from, to int) {
	dk, dv := t.dk, t.dv
	r.Keys(v, from, to, t.k[(g*t.bucket+slot)*dk:(g*t.bucket+slot+to-from)*dk])
	r.Values(v, from, to, t.v[(g*t.bucket+slot)*dv:(g*t.bucket+slot+to-from)*dv])
	positions(t.pos[g*t.bucket+slot:][:to-from], v, from)
}

// positions copies the positions of the tokens from a number on; pages are full but for the last.
func positions(dst []int32, v *attention.View, from int) {
	main := 0
	if n := len(v.Pages); n > 0 {
		main = (n-1)*v.Layout.Tokens + v.Pages[n-1].N
	}
	for i := 0; i < len(dst); {
		pages, tokens, at := v.Pages, v.Layout.Tokens, from+i
		if at >= main {
			pages, tokens, at = v.Recent, v.RecentLayout.Tokens, at-main
		}
		p := &pages[at/tokens]
		i += copy(dst[i:], p.Pos[at%tokens:p.N])
	}
}

// tokenBucket is the number of keys that a program is compiled for: a power of two, or one and a quarter, a half or three
// quarters of it, at least leastTokens, so that at most a fifth of the work is padding.
func tokenBucket(n int) int {
	whole := roundUp(n, leastTokens)
	for quarters := 5; quarters < 8; quarters++ {
		if part := whole / 8 * quarters; n <= part && part >= leastTokens {
			return part
		}
	}
	return whole
}
