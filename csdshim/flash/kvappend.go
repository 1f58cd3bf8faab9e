package flash

import (
	"fmt"
	"slices"
)

func newKVSequence(k KVShape) *kvSequence {
	return &kvSequence{shape: k, layers: make([]kvLayer, k.Layers)}
}

// ShapeKV says how an open sequence lies that the drive attends to; again with the same shape it does nothing. The shape is
// durable with the first pages.
func (s *Store) ShapeKV(seq uint32, shape KVShape) error {
	if err := shape.Validate(s.geo.PageBytes); err != nil {
		return err
	}
	s.mu.Lock()
	st := s.index.byID[seq]
	var err error
	switch {
	case st == nil:
		err = fmt.Errorf("csdshim: flash: sequence %d: %w", seq, ErrNotFound)
	case st.kv != nil && st.kv.shape != shape:
		err = fmt.Errorf("csdshim: flash: sequence %d lies as %+v, not as %+v: %w", seq, st.kv.shape, shape, ErrGeometry)
	case st.kv == nil:
		if err = s.writable(); err == nil {
			st.kv = newKVSequence(shape)
			s.mu.Unlock()
			return s.commit(appendShape(nil, seq, shape), false, func() {})
		}
	}
	s.mu.Unlock()
	return err
}

// TokensKV is how many tokens a layer has, in the group buffer too; 0 where there is no such layer.
func (s *Store) TokensKV(seq uint32, layer int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, l, err := s.kvLayer(seq, layer)
	if err != nil {
		return 0
	}
	return l.paged + st.kv.buffered(l)
}

// EmbeddedKV is how many tokens of a layer, from the first on, the embedding copy holds.
func (s *Store) EmbeddedKV(seq uint32, layer int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, l, err := s.kvLayer(seq, layer); err == nil {
		return l.embedded
	}
	return 0
}

// kvLayer finds a layer; mu is held.
func (s *Store) kvLayer(seq uint32, layer int) (*stored, *kvLayer, error) {
	st := s.index.byID[seq]
	if st == nil || st.kv == nil || layer < 0 || layer >= len(st.kv.layers) {
		return nil, nil, fmt.Errorf("csdshim: flash: sequence %d, layer %d: no keys and values that are attended to: %w", seq, layer, ErrNotFound)
	}
	return st, &st.kv.layers[layer], nil
}

// kvAppend is one append on its way: tokens from first on, of which some lie on a page that is not full, some in the group
// buffer, and the rest is new.
type kvAppend struct {
	s          *Store
	seq        uint32
	layer      int
	shape      KVShape
	before     kvLayer // as it was
	tokens     int     // before
	keys       []byte  // new rows, [tokens][Heads][KeyRow]
	values     []byte
	partial    [2][]byte // keys and values of a page that is not full, [Heads][n][row]
	first      int       // first token of that page
	items      []Item
	buildReads []uint32

	kvAfter
}

// kvAfter is a layer as it will be once the rows are written.
type kvAfter struct {
	total    int // after
	paged    int // after
	embedded int
	keepK    []byte // the group buffer after
	keepV    []byte
}

// AppendKV adds tokens at the end of a layer, all heads: keys [tokens][Heads][KeyDim] and values [tokens][Heads][ValueDim]. Full
// groups are programmed, and durable when it returns; other tokens wait in the group buffer, which survives the process, not a
// loss of power. Where the buffer is full, a group is written before it is complete, and again later. All or none is appended;
// ErrFull where it does not fit.
func (s *Store) AppendKV(seq uint32, layer, tokens int, keys, values []byte) (programmed []uint32, err error) {
	s.mu.Lock()
	st, _, err := s.kvLayer(seq, layer)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	kv := st.kv
	if k := kv.shape; tokens < 1 || len(keys) != tokens*k.Heads*k.KeyRowBytes() || len(values) != tokens*k.Heads*k.ValueRowBytes() {
		return nil, fmt.Errorf("csdshim: flash: %d tokens with %d bytes of keys and %d of values, want %d and %d: %w", tokens, len(keys), len(values), tokens*k.Heads*k.KeyRowBytes(), tokens*k.Heads*k.ValueRowBytes(), ErrGeometry)
	}
	kv.appending.Lock()
	defer kv.appending.Unlock()
	s.mu.Lock()
	a := &kvAppend{s: s, seq: seq, layer: layer, shape: kv.shape, before: kv.layers[layer], keys: keys, values: values}
	a.tokens = a.before.paged + kv.buffered(&a.before)
	s.mu.Unlock()
	a.total = a.tokens + tokens
	if a.total/kv.shape.TokenGroup >= maxIndex || a.total/64*kv.shape.KeyDim >= maxIndex {
		return nil, fmt.Errorf("csdshim: flash: %d tokens of a layer: more than a mapping table holds: %w", a.total, ErrFull)
	}
	return a.run(st)
}

func (a *kvAppend) run(st *stored) (programmed []uint32, err error) {
	n := a.shape.TokenGroup
	a.first = a.before.paged / n * n
	a.paged = max(a.total/n*n, a.before.paged)
	reserved, fits := a.reserve(a.total - a.paged)
	if !fits {
		a.paged = a.total
	}
	defer func() {
		if err != nil {
			a.release(reserved)
		}
	}()
	if err = a.tokenPages(); err == nil {
		err = a.embeddingPages()
	}
	if err != nil {
		return nil, err
	}
	a.keep()
	var records []byte
	if from := max(a.tokens, a.paged); from < a.total { // rows that were in the buffer before are in the journal
		k, v := a.rowBytes()
		at := from - a.paged
		records = appendRows(nil, a.seq, a.layer, from, a.keepK[at*k:], a.keepV[at*v:])
	}
	publish := func() {
		if a.s.index.byID[a.seq] != st { // dropped meanwhile
			a.s.buffer.bytes -= reserved
			return
		}
		a.s.housekeeping.Read = append(a.s.housekeeping.Read, a.buildReads...)
		st.kv.layers[a.layer] = kvLayer{paged: a.paged, embedded: a.embedded, keys: a.keepK, values: a.keepV}
		if !fits {
			a.s.buffer.bytes -= a.before.bytes()
		}
	}
	if len(a.items) == 0 {
		return nil, a.s.commit(records, false, publish)
	}
	return a.s.put(a.items, records, publish)
}

// rowBytes are the sizes of a token's keys and values of all heads.
func (a *kvAppend) rowBytes() (k, v int) {
	return a.shape.Heads * a.shape.KeyRowBytes(), a.shape.Heads * a.shape.ValueRowBytes()
}

// reserve takes room in the group buffer for what is in it more than before.
func (a *kvAppend) reserve(rows int) (reserved int64, ok bool) {
	k, v := a.rowBytes()
	more := int64(rows*(k+v)) - a.before.bytes()
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	if more > 0 && a.s.buffer.bytes+more > a.s.bufferLimit() {
		return 0, false
	}
	a.s.buffer.add(more)
	return more, true
}

func (a *kvAppend) release(reserved int64) {
	a.s.mu.Lock()
	a.s.buffer.bytes -= reserved
	a.s.mu.Unlock()
}

// row is a token's key or value of a head, from where it lies: a page that is not full, the group buffer, or the new ones.
func (a *kvAppend) row(part KVPart, head, token int) []byte {
	row, buffered, fresh := a.shape.KeyRowBytes(), a.before.keys, a.keys
	if part == KVValues {
		row, buffered, fresh = a.shape.ValueRowBytes(), a.before.values, a.values
	}
	switch {
	case token < a.before.paged:
		return a.partial[part][(head*(a.before.paged-a.first)+token-a.first)*row:][:row]
	case token < a.tokens:
		return buffered[((token-a.before.paged)*a.shape.Heads+head)*row:][:row]
	}
	return fresh[((token-a.tokens)*a.shape.Heads+head)*row:][:row]
}

// tokenPages makes the token copy's pages that are full now, or must be written before they are.
func (a *kvAppend) tokenPages() error {
	if a.paged == a.before.paged {
		return nil
	}
	if a.first < a.before.paged {
		if err := a.readPartial(); err != nil {
			return err
		}
	}
	n := a.shape.TokenGroup
	for from := a.first; from < a.paged; from += n {
		to := min(from+n, a.paged)
		for head := range a.shape.Heads {
			for _, part := range a.shape.tokenParts() {
				page := a.rows(nil, part, head, from, to)
				if a.shape.Paired {
					_, at := a.shape.paging(KVValues)
					page = a.rows(append(page, make([]byte, at-len(page))...), KVValues, head, from, to)
				}
				a.items = append(a.items, Item{Key: a.shape.tokenKey(a.seq, a.layer, head, part, from/n), Parts: [][]byte{page}, channel: tokenChannel(a.layer, head, part, from/n)})
			}
		}
	}
	return nil
}

// rows adds a head's keys or values of tokens to a page.
func (a *kvAppend) rows(page []byte, part KVPart, head, from, to int) []byte {
	for t := from; t < to; t++ {
		page = append(page, a.row(part, head, t)...)
	}
	return page
}

// readPartial reads the rows of the page that is written again.
func (a *kvAppend) readPartial() error {
	rows := a.before.paged - a.first
	var reqs []Request
	for part, row := range [...]int{a.shape.KeyRowBytes(), a.shape.ValueRowBytes()} {
		a.partial[part] = make([]byte, a.shape.Heads*rows*row)
		_, at := a.shape.paging(KVPart(part))
		for head := range a.shape.Heads {
			reqs = append(reqs, Request{Key: a.shape.tokenKey(a.seq, a.layer, head, KVPart(part), a.first/a.shape.TokenGroup), Off: at, Dst: a.partial[part][head*rows*row:][:rows*row]})
		}
	}
	pages, err := a.s.Get(reqs)
	a.buildReads = append(a.buildReads, pages...)
	return err
}

// embeddingPages makes the embedding copy's pages of every block of tokens that is complete now.
func (a *kvAppend) embeddingPages() error {
	a.embedded = a.before.embedded
	each := a.shape.EmbeddingTokens(a.s.geo.PageBytes)
	for each > 0 && a.embedded+each <= a.total {
		for head := range a.shape.Heads {
			keys, err := a.blockKeys(head, a.embedded, each)
			if err != nil {
				return err
			}
			a.turn(keys, head, a.embedded/each, each)
		}
		a.embedded += each
	}
	return nil
}

// blockKeys are a head's keys of a block of tokens, [each][KeyDim]; those on pages are read back.
func (a *kvAppend) blockKeys(head, from, each int) ([]byte, error) {
	row, n := a.shape.KeyRowBytes(), a.shape.TokenGroup
	keys := make([]byte, each*row)
	var reqs []Request
	for t := from; t < from+each; {
		if t >= a.first && (t >= a.before.paged || a.partial[KVKeys] != nil) {
			copy(keys[(t-from)*row:], a.row(KVKeys, head, t))
			t++
			continue
		}
		g := t / n
		to := min(g*n+n, a.before.paged, from+each)
		reqs = append(reqs, Request{Key: a.shape.tokenKey(a.seq, a.layer, head, KVKeys, g), Off: (t - g*n) * row, Dst: keys[(t-from)*row : (to-from)*row]})
		t = to
	}
	if len(reqs) == 0 {
		return keys, nil
	}
	pages, err := a.s.Get(reqs)
	a.buildReads = append(a.buildReads, pages...)
	return keys, err
}

// turn adds the pages of a block of a head's keys, dimension by dimension.
func (a *kvAppend) turn(keys []byte, head, block, each int) {
	m, size, dim := a.shape.EmbeddingGroup, a.shape.ElemBytes, a.shape.KeyDim
	for dims := range dim / m {
		page := make([]byte, m*each*size)
		for i := range m {
			column := page[i*each*size:][:each*size]
			at := (dims*m + i) * size
			for t := range each {
				copy(column[t*size:][:size], keys[t*dim*size+at:])
			}
		}
		a.items = append(a.items, Item{Key: a.shape.embeddingKey(a.seq, a.layer, head, dims, block), Parts: [][]byte{page}, channel: embeddingChannel(a.layer, head, dims, block)})
	}
}

// keep makes the group buffer as it is afterwards: tokens from paged on.
func (a *kvAppend) keep() {
	k, v := a.rowBytes()
	tail := func(buffered, fresh []byte, row int) []byte {
		skip := (a.paged - a.before.paged) * row
		if skip < len(buffered) {
			return slices.Concat(buffered[skip:], fresh)
		}
		return slices.Clone(fresh[skip-len(buffered):])
	}
	a.keepK, a.keepV = tail(a.before.keys, a.keys, k), tail(a.before.values, a.values, v)
}
