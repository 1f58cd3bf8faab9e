package attention

import (
	"math"
	"slices"
	"sort"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// tileTokens is the number of tokens of a tile, the unit in which views are walked.
const tileTokens = kvpage.Tile

// part is one run of pages of a view with one layout.
type part struct {
	layout *kvpage.Layout
	pages  []Page
	first  int // number of its first tile in the view
}

func (v *View) parts() [2]part {
	return [2]part{
		{layout: &v.Layout, pages: v.Pages},
		{layout: &v.RecentLayout, pages: v.Recent, first: len(v.Pages) * v.Layout.Tiles()},
	}
}

func (p *part) end() int { return p.first + len(p.pages)*p.layout.Tiles() }

// tileCount is the number of tiles of the view, unused ones included.
func (v *View) tileCount() int {
	return len(v.Pages)*v.Layout.Tiles() + len(v.Recent)*v.RecentLayout.Tiles()
}

// span is a range of positions, both ends included.
type span struct{ low, high int32 }

// everything holds every position.
var everything = span{low: math.MinInt32, high: math.MaxInt32}

// sees is the range of positions that a query at a position sees.
func (p *Params) sees(at int32) span {
	s := span{low: math.MinInt32, high: at}
	if p.Window > 0 && int(at)-p.Window+1 > math.MinInt32 {
		s.low = at - int32(p.Window) + 1
	}
	if p.Chunk > 0 {
		s.low = max(s.low, at-at%int32(p.Chunk))
	}
	return s
}

// seen is the smallest range that holds every position that one of the queries sees.
func (p *Params) seen(at []int32) span {
	if len(at) == 0 {
		return span{low: 0, high: -1}
	}
	return span{low: p.sees(slices.Min(at)).low, high: slices.Max(at)}
}

// inside reports whether the span has no lower end and holds the view's last position, so all: positions ascend.
func (v *View) inside(s span) bool {
	pages := v.Recent
	if len(pages) == 0 {
		pages = v.Pages
	}
	if s.low != math.MinInt32 || len(pages) == 0 {
		return false
	}
	last := &pages[len(pages)-1]
	return last.N > 0 && last.Pos[last.N-1] <= s.high
}

// tileRange is the smallest range of tiles that holds every token with a position in the span, without looking at more
// than a few pages.
func (v *View) tileRange(s span) (from, to int) {
	ps := v.parts()
	from, to = -1, 0
	for i := range ps {
		p := &ps[i]
		if len(p.pages) == 0 {
			continue
		}
		a, b := p.pageRange(s)
		if a >= b {
			continue
		}
		if from < 0 {
			// Tiles before the span in its first page do not count, so that the work is cut the same for every page size.
			from = p.first + a*p.layout.Tiles()
			for pos := p.pages[a].Pos[:p.pages[a].N]; len(pos) > tileTokens && pos[tileTokens-1] < s.low; pos = pos[tileTokens:] {
				from++
			}
		}
		to = p.first + b*p.layout.Tiles()
		last := &p.pages[b-1]
		used := (last.N + tileTokens - 1) / tileTokens
		for used > 1 && last.Pos[(used-1)*tileTokens] > s.high {
			used--
		}
		to -= p.layout.Tiles() - used
	}
	return max(from, 0), to
}

// pageRange is the range of pages with a position in the span. Almost always the newest pages matter, so the search
// starts at the end and doubles its steps.
func (p *part) pageRange(s span) (from, to int) {
	to = len(p.pages)
	for to > 0 && (p.pages[to-1].N == 0 || p.pages[to-1].Pos[0] > s.high) {
		to--
	}
	if s.low == math.MinInt32 {
		return 0, to
	}
	before := func(i int) bool { // page i ends before the span; an empty page counts with its successor
		n := p.pages[i].N
		return n > 0 && p.pages[i].Pos[n-1] < s.low
	}
	step, low := 1, to
	for low > 0 && !before(low-1) {
		low = max(0, low-step)
		step *= 2
	}
	from = low
	for from < to && (p.pages[from].N == 0 || before(from)) {
		from++
	}
	return from, to
}

// list is a run of tiles as the kernels take them.
type list struct {
	elemK, elemV kernels.KVElem
	keys, values [][]byte
	masks        []uint16
	tile         []int32  // number of the tile in the view
	spread       []uint16 // where the keys of chosen tokens lie in other tiles than their values: masks of the keys' tiles

	layout                *kvpage.Layout
	valueBytes, valueFrom int // of a tile; where a page's values start
}

func (l *list) reset(p *part) {
	l.elemK, l.elemV = kernels.KVElem(p.layout.K), kernels.KVElem(p.layout.V)
	l.keys, l.values, l.masks, l.tile, l.spread = l.keys[:0], l.values[:0], l.masks[:0], l.tile[:0], l.spread[:0]
	l.layout, l.valueBytes, l.valueFrom = p.layout, tileTokens*p.layout.VRowBytes(), p.layout.ValuesAt()
}

func (l *list) add(data []byte, tile, inPage int, mask uint16) {
	v := l.valueFrom + inPage*l.valueBytes
	l.keys = append(l.keys, l.layout.KTile(data, inPage))
	l.values = append(l.values, data[v:v+l.valueBytes])
	l.masks = append(l.masks, mask)
	l.tile = append(l.tile, int32(tile))
}

// fill lists the tiles [from, to) of one part that hold tokens of the span. Only the first and the last page of the
// range can have tokens outside it, because positions ascend: the others' positions are not looked at.
func (l *list) fill(p *part, from, to int, s span) {
	l.reset(p)
	per := p.layout.Tiles()
	page, in := (from-p.first)/per, (from-p.first)%per
	firstPage, lastPage := page, (to-1-p.first)/per
	for t := from; t < to; t++ {
		pg := &p.pages[page]
		n := min(tileTokens, pg.N-in*tileTokens)
		mask := uint16(0xffff)
		if n < tileTokens {
			mask = uint16(1<<max(n, 0) - 1)
		}
		if n > 0 && (page == firstPage || page == lastPage) && s != everything {
			pos := pg.Pos[in*tileTokens:][:n]
			if pos[0] < s.low || pos[n-1] > s.high {
				mask = s.mask(pos)
			}
		}
		if mask != 0 {
			l.add(pg.Data, t, in, mask)
		}
		if in++; in == per {
			page, in = page+1, 0
		}
	}
}

// mask has a bit for every position in the span.
func (s span) mask(pos []int32) uint16 {
	var m uint16
	for j, at := range pos {
		if at >= s.low && at <= s.high {
			m |= 1 << j
		}
	}
	return m
}

// bases are the view-order numbers of the first token of every page, Pages before Recent, and the total at the end.
func (v *View) bases(dst []int32) []int32 {
	n := int32(0)
	for _, pages := range [][]Page{v.Pages, v.Recent} {
		for i := range pages {
			dst = append(dst, n)
			n += int32(pages[i].N)
		}
	}
	return append(dst, n)
}

// tokenOf is the view-order number of a tile's first token.
func (v *View) tokenOf(bases []int32, tile int) int {
	per, first, page := v.Layout.Tiles(), 0, 0
	if n := len(v.Pages) * per; tile >= n {
		per, first, page = v.RecentLayout.Tiles(), n, len(v.Pages)
	}
	page += (tile - first) / per
	return int(bases[page]) + (tile-first)%per*tileTokens
}

// gather lists the tiles that hold the tokens chosen, view-order numbers in rising order, of one part whose pages'
// bases start at bases[0]; others in the same tiles are masked out. It returns how many of the tokens belong to the part.
func (l *list) gather(p *part, bases []int32, chosen []int32) int {
	l.reset(p)
	per := p.layout.Tiles()
	end := bases[len(p.pages)]
	page, i := 0, 0
	for i < len(chosen) && chosen[i] < end {
		at := chosen[i]
		if page+1 < len(p.pages) && at >= bases[page+1] {
			page = p.pageOf(bases, page, at)
		}
		in := int(at-bases[page]) / tileTokens
		first := bases[page] + int32(in*tileTokens)
		last := min(first+tileTokens, bases[page+1])
		var mask uint16
		for i < len(chosen) && chosen[i] < last {
			mask |= 1 << (chosen[i] - first)
			i++
		}
		l.add(p.pages[page].Data, p.first+page*per+in, in, mask)
	}
	return i
}

// position is that of the token with a view-order number.
func (v *View) position(bases []int32, token int32) int32 {
	page := sort.Search(len(v.Pages)+len(v.Recent), func(i int) bool { return bases[i+1] > token })
	slot := token - bases[page]
	if page < len(v.Pages) {
		return v.Pages[page].Pos[slot]
	}
	return v.Recent[page-len(v.Pages)].Pos[slot]
}
