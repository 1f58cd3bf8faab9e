package xla

import (
	"terrace/attention"
	"terrace/internal/kvpage"
)

// gathered are the keys and values of one sequence and layer, read from its views into the shapes of the program and padded
// to a bucket of tokens.
type gathered struct {
	bucket int
	k      []float32 // [G, bucket, dk]
	v      []float32 // [G, bucket, dv]
	pos    []int32   // [G, bucket], noKey where there is none
	index  [][]int32 // a KV head: number in view order of each token
	total  []int     // a KV head: tokens of the view, chosen or not
}

// gather reads the views, only the selected tokens where there is a selection.
func (b *backend) gather(p *attention.Params, s *attention.Seq) *gathered {
	most := 1
	for g := range s.Views {
		n := s.Views[g].Tokens()
		if s.Select != nil && s.Select[g] != nil {
			n = len(s.Select[g])
		}
		most = max(most, n)
	}
	t := &gathered{bucket: tokenBucket(most), index: make([][]int32, p.KVHeads), total: make([]int, p.KVHeads)}
	t.k, t.v = make([]float32, p.KVHeads*t.bucket*p.KeyDim), make([]float32, p.KVHeads*t.bucket*p.ValueDim)
	t.pos = make([]int32, p.KVHeads*t.bucket)
	for i := range t.pos {
		t.pos[i] = noKey
	}
	for g := range s.Views {
		var chosen []int32
		all := s.Select == nil || s.Select[g] == nil
		if !all {
			chosen = s.Select[g]
		}
		t.read(p, g, s.Views[g].Layout, s.Views[g].Pages, all, &chosen)
		t.read(p, g, s.Views[g].RecentLayout, s.Views[g].Recent, all, &chosen)
	}
	return t
}

// read appends the tokens of pages to a KV head.
func (t *gathered) read(p *attention.Params, g int, l kvpage.Layout, pages []attention.Page, all bool, chosen *[]int32) {
	for i := range pages {
		page := &pages[i]
		for slot := range page.N {
			at := int32(t.total[g])
			t.total[g]++
			if !all {
				if len(*chosen) == 0 || (*chosen)[0] != at {
					continue
				}
				*chosen = (*chosen)[1:]
			}
			n := len(t.index[g])
			t.index[g] = append(t.index[g], at)
			t.pos[g*t.bucket+n] = page.Pos[slot]
			kvpage.ReadK(l, page.Data, slot, t.k[(g*t.bucket+n)*p.KeyDim:][:p.KeyDim])
			kvpage.ReadV(l, page.Data, slot, t.v[(g*t.bucket+n)*p.ValueDim:][:p.ValueDim])
		}
	}
}

// sumMass adds summed weights [G, group, bucket].
func (t *gathered) sumMass(p *attention.Params, m *attention.Mass, weights []float32) {
	group := p.Heads / p.KVHeads
	for head := range p.Heads {
		if m.Sum == nil || m.Sum[head] == nil {
			continue
		}
		for j, at := range t.index[head/group] {
			m.Sum[head][at] += weights[head*t.bucket+j]
		}
	}
}

// eachMass hands the weights [G, rows, group, bucket] of rows [from, to) on, row by row.
func (t *gathered) eachMass(p *attention.Params, m *attention.Mass, weights []float32, from, to, rows int) {
	group := p.Heads / p.KVHeads
	for head := range p.Heads {
		g := head / group
		for r := max(from, m.FromRow); r < to; r++ {
			row := weights[((g*rows+r-from)*group+head%group)*t.bucket:]
			for j, at := range t.index[g] {
				m.Rows[head][(r-m.FromRow)*t.total[g]+int(at)] = row[j]
				if m.Sum != nil && m.Sum[head] != nil {
					m.Sum[head][at] += row[j]
				}
			}
		}
	}
}

// tokenBucket is the number of keys that a program is compiled for: a power of two or one and a half of it, at least
// leastTokens, so that at most a third of the work is padding.
func tokenBucket(n int) int {
	whole := roundUp(n, leastTokens)
	if part := whole / 4 * 3; n <= part && part >= leastTokens {
		return part
	}
	return whole
}
