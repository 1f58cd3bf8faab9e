package vulkan

import (
	"encoding/binary"
	"fmt"

	"terrace/attention"
	"terrace/internal/kvpage"
	"terrace/internal/vulkan"
	"terrace/model"
)

// tileTokens is the number of tokens of a tile on the device.
const tileTokens = kvpage.Tile

// mirrorKey names a mirror: the sequence and the layer.
type mirrorKey struct {
	cache uint64
	layer int
}

// mirror is the device's copy of what one sequence's views of a layer show.
type mirror struct {
	elem  kvpage.Elem
	heads [][]tile // [KV heads]
	table span     // [KV heads, room] addresses and tokens
	room  int
	rows  []uint32 // the table as the device has it
	used  int64    // the pass that needed it last, and when in it
	order int64
	done  int64 // the pass whose rows have attended to it last
	bytes int64 // of its tiles
	aside int64 // the upload that brought some of them beside the commands (aside.number)
}

// tile is 16 tokens on the device and the part of a page that it is a copy of.
type tile struct {
	on      span
	version uint64
	tokens  int
}

// mirrors are all of a backend, bounded together.
type mirrors struct {
	r      *recorder
	m      *model.Model
	budget int64 // of tiles; 0 = none
	held   int64
	peak   int64
	pass   int64
	clock  int64
	all    map[mirrorKey]*mirror
	aside  aside
}

func newMirrors(r *recorder, m *model.Model, budget int64) mirrors {
	return mirrors{r: r, m: m, budget: budget, all: map[mirrorKey]*mirror{}}
}

// stored is the type in which a layer's tiles are: that of its pages, float32 for those whose numbers share scales.
func stored(views []attention.View) kvpage.Elem {
	e := views[0].Layout.K
	for i := range views {
		v := &views[i]
		if v.Layout.K != e || v.Layout.V != e || len(v.Recent) > 0 || e.Quantised() {
			return kvpage.F32
		}
	}
	return e
}

// tileBytes is the size of a tile: keys, values, positions.
func (s *mirrors) tileBytes(layer int, e kvpage.Elem) int64 {
	a := &s.m.Layer[layer].Attention
	return int64(tileTokens * ((a.KeyDim+a.ValDim)*e.Bits()/8 + 4))
}

// known reports whether pages can be told apart by their versions.
func known(views []attention.View) bool {
	for g := range views {
		if views[g].Cache == 0 || len(views[g].Recent) > 0 {
			return false
		}
		for i := range views[g].Pages {
			if views[g].Pages[i].Version == 0 {
				return false
			}
		}
	}
	return true
}

// need is how many bytes of tiles a layer's views take.
func (s *mirrors) need(layer int, views []attention.View) (bytes int64) {
	for g := range views {
		bytes += int64(groupsOf(views[g].Tokens(), tileTokens)) * s.tileBytes(layer, stored(views))
	}
	return bytes
}

// sync makes the mirror of a layer equal to its views; only tiles that are new or have more tokens go up. A mirror of unknown pages is
// the caller's to drop.
func (s *mirrors) sync(layer int, views []attention.View) (*mirror, error) {
	key, keeps := mirrorKey{views[0].Cache, layer}, known(views)
	var m *mirror
	if keeps {
		m = s.all[key]
	}
	if elem := stored(views); m == nil || m.elem != elem {
		if m != nil {
			s.drop(key, m)
		}
		m = &mirror{elem: elem, heads: make([][]tile, len(views))}
		if keeps {
			s.all[key] = m
		}
	}
	if m.aside == s.aside.number && !s.aside.lifting {
		if err := s.aside.wait(); err != nil {
			return nil, err
		}
	}
	s.clock++
	m.used, m.order = s.pass, s.clock
	for g := range views {
		if err := s.head(m, layer, g, &views[g]); err != nil {
			s.drop(key, m)
			return nil, err
		}
	}
	if err := s.tables(m); err != nil {
		s.drop(key, m)
		return nil, err
	}
	return m, nil
}

// head brings one KV head's tiles up to date.
func (s *mirrors) head(m *mirror, layer, g int, v *attention.View) error {
	at := 0
	for _, part := range []struct {
		l     kvpage.Layout
		pages []attention.Page
	}{{v.Layout, v.Pages}, {v.RecentLayout, v.Recent}} {
		for i := range part.pages {
			p := &part.pages[i]
			for first := 0; first < p.N; first += tileTokens {
				if at == len(m.heads[g]) {
					t, err := s.tile(m, layer)
					if err != nil {
						return err
					}
					m.heads[g] = append(m.heads[g], t)
				}
				t, n := &m.heads[g][at], min(tileTokens, p.N-first)
				if t.version != p.Version || p.Version == 0 || t.tokens < n {
					if err := s.lift(m, layer, t.on, part.l, p, first, n); err != nil {
						return err
					}
				}
				t.version, t.tokens = p.Version, n
				at++
			}
		}
	}
	for _, t := range m.heads[g][at:] {
		s.release(m, layer, t)
	}
	m.heads[g] = m.heads[g][:at]
	return nil
}

// tile gives room for a tile; mirrors leave by their turns.
func (s *mirrors) tile(m *mirror, layer int) (tile, error) {
	bytes := s.tileBytes(layer, m.elem)
	for s.budget > 0 && s.held+bytes > s.budget {
		if !s.evict(m) {
			return tile{}, fmt.Errorf("vulkan: %d bytes of keys and values on the device, %d of them for layer %d of one sequence, the budget is %d: %w",
				s.held+bytes, m.bytes+bytes, layer, s.budget, model.ErrDeviceMemory)
		}
	}
	on, err := s.r.heap.alloc(bytes)
	if err != nil {
		return tile{}, deviceError(err)
	}
	m.bytes += bytes
	s.held += bytes
	s.peak = max(s.peak, s.held)
	return tile{on: on}, nil
}

// Turns of mirrors to leave.
const (
	stale  = iota // older passes needed it, the oldest first
	done          // this pass has read it; of these and the others the last one first, so that of layers that do not all fit most stay
	later         // this pass has not come to it
	wanted        // this pass is about to read it
)

func (s *mirrors) turn(m *mirror) int {
	switch {
	case m.used < s.pass-1:
		return stale
	case m.done == s.pass:
		return done
	case m.used < s.pass:
		return later
	}
	return wanted
}

func (s *mirrors) evict(mine *mirror) bool {
	var key mirrorKey
	var out *mirror
	for k, m := range s.all {
		if m == mine || m.bytes == 0 {
			continue
		}
		if out != nil {
			switch a, b := s.turn(m), s.turn(out); {
			case a > b, a == b && a == stale && m.order > out.order, a == b && a > stale && m.order < out.order:
				continue
			}
		}
		key, out = k, m
	}
	if out != nil {
		s.drop(key, out)
	}
	return out != nil
}

// release gives a tile's bytes back.
func (s *mirrors) release(m *mirror, layer int, t tile) {
	bytes := s.tileBytes(layer, m.elem)
	s.landed(m)
	s.r.heap.release(t.on)
	m.bytes -= bytes
	s.held -= bytes
}

// landed waits for tiles of a mirror that are on their way, before their memory is another's. A device that fails is told by the next call.
func (s *mirrors) landed(m *mirror) {
	if m.aside == s.aside.number {
		_ = s.aside.wait()
	}
}

// drop forgets a mirror.
func (s *mirrors) drop(key mirrorKey, m *mirror) {
	s.landed(m)
	for _, head := range m.heads {
		for _, t := range head {
			s.r.heap.release(t.on)
		}
	}
	s.r.heap.release(m.table)
	s.held -= m.bytes
	*m = mirror{}
	if s.all[key] == m {
		delete(s.all, key)
	}
}

// lift uploads n tokens of a page from slot first on, a whole tile.
func (s *mirrors) lift(m *mirror, layer int, to span, l kvpage.Layout, p *attention.Page, first, n int) error {
	e := m.elem
	size := e.Bits() / 8
	data := make([]byte, 0, s.tileBytes(layer, e))
	if l.K == e && l.V == e && !l.TokenMajor && !e.Quantised() {
		data = append(data, l.KTile(p.Data, first/tileTokens)...)
		for i := range tileTokens {
			data = append(data, l.VRow(p.Data, first+i)...)
		}
	} else {
		data = data[:tileTokens*(l.KeyDim+l.ValueDim)*size]
		row, one := make([]float32, max(l.KeyDim, l.ValueDim)), make([]byte, size)
		for i := range n {
			kvpage.ReadK(l, p.Data, first+i, row[:l.KeyDim])
			for d, x := range row[:l.KeyDim] {
				kvpage.PutRow(e, one, []float32{x})
				copy(data[(d*tileTokens+i)*size:], one)
			}
			kvpage.ReadV(l, p.Data, first+i, row[:l.ValueDim])
			kvpage.PutRow(e, data[(tileTokens*l.KeyDim+i*l.ValueDim)*size:], row[:l.ValueDim])
		}
	}
	for i := range tileTokens {
		pos := int32(0)
		if i < n {
			pos = p.Pos[first+i]
		}
		data = binary.LittleEndian.AppendUint32(data, uint32(pos))
	}
	s.r.use.UpBytes += int64(len(data))
	if done, err := s.aside.lift(s.r, to, data); done || err != nil {
		m.aside = s.aside.number
		return err
	}
	return s.r.upload(to, data)
}

// tables brings the device's table of a mirror up to date.
func (s *mirrors) tables(m *mirror) error {
	most := 1
	for _, head := range m.heads {
		most = max(most, len(head))
	}
	if most > m.room {
		s.r.heap.release(m.table)
		m.room = max(16, most+most/2)
		var err error
		if m.table, err = s.r.heap.alloc(int64(16 * m.room * len(m.heads))); err != nil {
			return deviceError(err)
		}
		m.rows = make([]uint32, 4*m.room*len(m.heads))
		for i := range m.rows {
			m.rows[i] = ^uint32(0) // nothing that a tile has: all of it goes up
		}
	}
	for g, head := range m.heads {
		low, high := -1, 0
		for i, t := range head {
			row := m.rows[4*(g*m.room+i):][:4]
			address := t.on.address()
			if want := [4]uint32{uint32(address), uint32(address >> 32), uint32(t.tokens), 0}; [4]uint32(row) != want {
				copy(row, want[:])
				if low < 0 {
					low = i
				}
				high = i + 1
			}
		}
		if low >= 0 {
			from, to := 4*(g*m.room+low), 4*(g*m.room+high)
			s.r.use.UpBytes += int64(4 * (to - from))
			if err := s.r.upload(m.table.from(4*from), vulkan.Bytes(m.rows[from:to])); err != nil {
				return err
			}
		}
	}
	return nil
}

// numbers are the tokens' numbers in view order by columns, 16·tile+slot; -1 where there is none.
func (m *mirror) numbers(g int) []int {
	out, n := make([]int, 0, len(m.heads[g])*tileTokens), 0
	for _, t := range m.heads[g] {
		for slot := range tileTokens {
			if slot < t.tokens {
				out = append(out, n+slot)
			} else {
				out = append(out, -1)
			}
		}
		n += t.tokens
	}
	return out
}

// codes are the columns of tokens by their numbers in view order, which rise.
func (m *mirror) codes(g int, numbers []int32) []int32 {
	out, at, first := make([]int32, len(numbers)), 0, int32(0)
	for i, number := range numbers {
		for at < len(m.heads[g]) && number >= first+int32(m.heads[g][at].tokens) {
			first += int32(m.heads[g][at].tokens)
			at++
		}
		out[i] = int32(at*tileTokens) + number - first
	}
	return out
}
