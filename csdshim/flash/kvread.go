package flash

import "fmt"

// kvReads is one ReadKV on its way.
type kvReads struct {
	s     *Store
	st    *stored
	arena *arena
	seen  map[*entry]int32 // where several reads may need a page; else nil
}

// ReadKV fills every Dst. Where several reads, of any heads, need one page it is read once; rows that wait in the group buffer
// cost none. read are the pages.
func (s *Store) ReadKV(seq uint32, reads []KVRead) (read []uint32, err error) {
	s.io.RLock()
	defer s.io.RUnlock()
	a := arenas.Get().(*arena)
	defer a.giveBack()
	r := &kvReads{s: s, arena: a}
	if err := r.resolve(seq, reads); err != nil {
		return nil, err
	}
	read = make([]uint32, len(a.wants))
	for i, w := range a.wants {
		read[i] = w.e.pages[0].number
	}
	if err := s.fill(a, a.deliver); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.countReads(read)
	s.mu.Unlock()
	return read, nil
}

// resolve finds the pages, and copies what the group buffer has.
func (r *kvReads) resolve(seq uint32, reads []KVRead) error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.s.closed {
		return fmt.Errorf("csdshim: flash: %s: %w", r.s.dir, ErrClosed)
	}
	type source struct {
		layer, head int
		part        KVPart
	}
	sources := make(map[source]bool, len(reads))
	for _, q := range reads {
		k := source{q.Layer, q.Head, q.Part}
		if st := r.s.index.byID[seq]; st != nil && st.kv != nil {
			k.part, _ = st.kv.shape.paging(q.Part)
		}
		if sources[k] {
			r.seen = map[*entry]int32{}
		}
		sources[k] = true
	}
	for _, q := range reads {
		st, l, err := r.s.kvLayer(seq, q.Layer)
		if err != nil {
			return err
		}
		if q.Head < 0 || q.Head >= st.kv.shape.Heads || q.Part > KVEmbeddings {
			return fmt.Errorf("csdshim: flash: sequence %d, layer %d: head %d of %d, part %d: %w", seq, q.Layer, q.Head, st.kv.shape.Heads, q.Part, ErrNotFound)
		}
		r.st = st
		if q.Part == KVEmbeddings {
			err = r.columns(l, q)
		} else {
			err = r.rows(l, q)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// page wants a page, once; last is the want before, which a neighbour shares.
func (r *kvReads) page(k Key, last int32) (int32, error) {
	e := r.st.find(k)
	if e == nil {
		return 0, fmt.Errorf("csdshim: flash: sequence %d, table %d, row %d, group %d: %w", k.Seq, k.Table, k.Layer, k.Group, ErrNotFound)
	}
	if last >= 0 && r.arena.wants[last].e == e {
		return last, nil
	}
	if i, ok := r.seen[e]; ok {
		return i, nil
	}
	i := r.arena.want(e, 0)
	if r.seen != nil {
		r.seen[e] = i
	}
	return i, nil
}

// rows wants tokens' keys or values.
func (r *kvReads) rows(l *kvLayer, q KVRead) error {
	k := r.st.kv.shape
	row, buffer := k.KeyRowBytes(), l.keys
	if q.Part == KVValues {
		row, buffer = k.ValueRowBytes(), l.values
	}
	_, begins := k.paging(q.Part)
	tokens := l.paged + r.st.kv.buffered(l)
	if len(q.Dst) != len(q.Index)*row {
		return fmt.Errorf("csdshim: flash: %d rows into %d bytes, want %d: %w", len(q.Index), len(q.Dst), len(q.Index)*row, ErrGeometry)
	}
	for i, t := range q.Index {
		if t < 0 || int(t) >= tokens || i > 0 && t <= q.Index[i-1] {
			return fmt.Errorf("csdshim: flash: layer %d: token %d at place %d, want rising ones below %d: %w", q.Layer, t, i, tokens, ErrNotFound)
		}
	}
	last := int32(-1)
	for i := 0; i < len(q.Index); { // neighbours of one page in one piece
		t, g, end := int(q.Index[i]), int(q.Index[i])/k.TokenGroup, i+1
		for bound := min(int32(g+1)*int32(k.TokenGroup), int32(max(l.paged, t+1))); end < len(q.Index) && q.Index[end] == q.Index[end-1]+1 && q.Index[end] < bound; {
			end++
		}
		dst := q.Dst[i*row : end*row]
		if i = end; t >= l.paged {
			copy(dst, buffer[((t-l.paged)*k.Heads+q.Head)*row:])
			continue
		}
		w, err := r.page(k.tokenKey(r.st.ID, q.Layer, q.Head, q.Part, g), last)
		if err != nil {
			return err
		}
		r.arena.part(w, begins+(t-g*k.TokenGroup)*row, dst)
		last = w
	}
	return nil
}

// columns wants dimensions of all tokens that the embedding copy holds.
func (r *kvReads) columns(l *kvLayer, q KVRead) error {
	k := r.st.kv.shape
	each := k.EmbeddingTokens(r.s.geo.PageBytes)
	if len(q.Dst) != len(q.Index)*l.embedded*k.ElemBytes {
		return fmt.Errorf("csdshim: flash: %d dimensions of %d tokens into %d bytes, want %d: %w", len(q.Index), l.embedded, len(q.Dst), len(q.Index)*l.embedded*k.ElemBytes, ErrGeometry)
	}
	for i, d := range q.Index {
		if d < 0 || int(d) >= k.KeyDim || i > 0 && d <= q.Index[i-1] {
			return fmt.Errorf("csdshim: flash: layer %d: dimension %d at place %d, want rising ones below %d: %w", q.Layer, d, i, k.KeyDim, ErrNotFound)
		}
	}
	for from := 0; from < len(q.Index); {
		dims, to := int(q.Index[from])/max(1, k.EmbeddingGroup), from+1
		for to < len(q.Index) && int(q.Index[to])/k.EmbeddingGroup == dims {
			to++
		}
		for b := range l.embedded / max(1, each) {
			w, err := r.page(k.embeddingKey(r.st.ID, q.Layer, q.Head, dims, b), -1)
			if err != nil {
				return err
			}
			size := each * k.ElemBytes
			for i := from; i < to; i++ {
				off := (int(q.Index[i]) - dims*k.EmbeddingGroup) * size
				r.arena.part(w, off, q.Dst[i*l.embedded*k.ElemBytes+b*size:][:size])
			}
		}
		from = to
	}
	return nil
}
