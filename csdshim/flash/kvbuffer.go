package flash

import (
	"encoding/binary"
	"fmt"
	"sync"
)

// kvSequence is a sequence that the drive attends to.
type kvSequence struct {
	appending sync.Mutex // one append at a time; taken before all locks of the store
	shape     KVShape
	layers    []kvLayer // guarded by the store's mu
}

// kvLayer is where a layer's tokens are: the first paged of them on token pages, the rest in the group buffer.
type kvLayer struct {
	paged, embedded int
	keys, values    []byte // [buffered][Heads][row]
}

func (l *kvLayer) bytes() int64 { return int64(len(l.keys) + len(l.values)) }

// buffered is how many tokens wait in the group buffer.
func (kv *kvSequence) buffered(l *kvLayer) int {
	return len(l.keys) / (kv.shape.Heads * kv.shape.KeyRowBytes())
}

// groupBuffer counts what all sequences' layers hold in the drive's memory.
type groupBuffer struct{ bytes, peak int64 }

func (b *groupBuffer) add(n int64) {
	b.bytes += n
	b.peak = max(b.peak, b.bytes)
}

// drop forgets a sequence's buffers.
func (b *groupBuffer) drop(kv *kvSequence) {
	if kv == nil {
		return
	}
	for i := range kv.layers {
		b.bytes -= kv.layers[i].bytes()
		kv.layers[i] = kvLayer{}
	}
}

// GroupBufferBytes is what tokens that wait for their group take now.
func (s *Store) GroupBufferBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buffer.bytes
}

// bufferLimit is what the group buffer may hold now.
func (s *Store) bufferLimit() int64 {
	if s.opts.GroupBufferBytes == nil {
		return 0
	}
	return s.opts.GroupBufferBytes()
}

// pairedGroup is set in a journal's TokenGroup where keys and values share pages.
const pairedGroup = 1 << 30

func appendShape(dst []byte, seq uint32, k KVShape) []byte {
	dst = append(dst, recordShape)
	group := k.TokenGroup
	if k.Paired {
		group |= pairedGroup
	}
	for _, v := range [...]int{int(seq), k.Layers, k.Heads, k.KeyDim, k.ValueDim, k.ElemBytes, group, k.EmbeddingGroup} {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(v))
	}
	return dst
}

// appendRows records what a layer's group buffer has from a token on.
func appendRows(dst []byte, seq uint32, layer, from int, keys, values []byte) []byte {
	le := binary.LittleEndian
	dst = append(dst, recordRows)
	for _, v := range [...]uint32{seq, uint32(layer), uint32(from)} {
		dst = le.AppendUint32(dst, v)
	}
	dst = append(le.AppendUint32(dst, uint32(len(keys))), keys...)
	return append(le.AppendUint32(dst, uint32(len(values))), values...)
}

func (kv *kvSequence) appendBuffer(dst []byte, seq uint32, layer int) []byte {
	l := &kv.layers[layer]
	if len(l.keys) == 0 {
		return dst
	}
	return appendRows(dst, seq, layer, l.paged, l.keys, l.values)
}

// replayKV applies a shape or rows; recoverKV looks at them together with the pages.
func (s *Store) replayKV(kind byte, c *cursor) error {
	st := s.index.byID[c.u32()]
	if kind == recordShape {
		k := KVShape{Layers: int(c.u32()), Heads: int(c.u32()), KeyDim: int(c.u32()), ValueDim: int(c.u32()), ElemBytes: int(c.u32()), TokenGroup: int(c.u32()), EmbeddingGroup: int(c.u32())}
		if st == nil || !c.ok {
			return nil
		}
		k.Paired, k.TokenGroup = k.TokenGroup&pairedGroup != 0, k.TokenGroup&^pairedGroup
		if err := k.Validate(s.geo.PageBytes); err != nil {
			return fmt.Errorf("csdshim: flash: journal: %v: %w", err, ErrCorrupt)
		}
		st.kv = newKVSequence(k)
		return nil
	}
	layer, from := int(c.u32()), int(c.u32())
	keys := c.take(int(c.u32()))
	values := c.take(int(c.u32()))
	if !c.ok || st == nil || st.kv == nil || layer >= len(st.kv.layers) {
		return nil
	}
	l := &st.kv.layers[layer]
	// A record that goes on where the buffer ends adds to it; any other begins a new one.
	if from != l.paged+st.kv.buffered(l) {
		l.paged, l.keys, l.values = from, l.keys[:0], l.values[:0]
	}
	l.keys, l.values = append(l.keys, keys...), append(l.values, values...)
	return nil
}

// recoverKV finds out, after the journal was replayed, how many tokens of each layer are on pages, and keeps of the replayed
// rows those after them. Rows that do not follow are lost: the layer ends where its pages end.
func (s *Store) recoverKV() {
	for _, st := range s.index.byID {
		if st.kv == nil {
			continue
		}
		for i := range st.kv.layers {
			l := &st.kv.layers[i]
			k, v := st.kv.shape.Heads*st.kv.shape.KeyRowBytes(), st.kv.shape.Heads*st.kv.shape.ValueRowBytes()
			paged := st.pagedTokens(i)
			n := st.kv.buffered(l)
			skip := paged - l.paged
			if skip < 0 || skip > n {
				skip = n
			}
			l.keys, l.values = append([]byte(nil), l.keys[skip*k:]...), append([]byte(nil), l.values[skip*v:]...)
			l.paged, l.embedded = paged, st.embeddedTokens(i, s.geo.PageBytes)
			s.buffer.add(l.bytes())
		}
	}
}

// pagedTokens is how many tokens of a layer, from the first on, lie on token pages.
func (st *stored) pagedTokens(layer int) (n int) {
	k := st.kv.shape
	for g := 0; ; g++ {
		e := st.find(k.tokenKey(st.ID, layer, k.Heads-1, KVValues, g))
		if e == nil {
			return n
		}
		_, at := k.paging(KVValues)
		have := (int(e.length) - at) / k.ValueRowBytes()
		if n += have; have < k.TokenGroup {
			return n
		}
	}
}

// embeddedTokens is how many tokens of a layer the embedding copy holds.
func (st *stored) embeddedTokens(layer, pageBytes int) int {
	k := st.kv.shape
	each, last := k.EmbeddingTokens(pageBytes), k.KeyDim/max(1, k.EmbeddingGroup)-1
	for b := 0; ; b++ {
		if each == 0 || st.find(k.embeddingKey(st.ID, layer, k.Heads-1, last, b)) == nil {
			return b * each
		}
	}
}
