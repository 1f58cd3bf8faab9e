package tokenizer

import (
	"fmt"
	"math"
)

// space is SentencePiece's written space, U+2581.
const space = "\u2581"

// spmModel is SentencePiece's byte-pair encoding: the neighbouring pair whose
// joined text is the token of highest score merges first, leftmost on ties.
type spmModel struct {
	vocab *Vocab
	ids   *tokenTable
	order []uint32   // rank of every token by falling score: lower merges first
	bytes [256]int32 // id of <0x..>, or of the byte itself
	cuts  spaceCuts
}

func newSPM(v *Vocab, ids *tokenTable) (*spmModel, error) {
	m := &spmModel{vocab: v, ids: ids, order: make([]uint32, len(v.Tokens)), cuts: newSpaceCuts(v.Tokens)}
	for id, score := range v.Scores {
		if score != score {
			return nil, fmt.Errorf("tokenizer: score %d of token %.40q is not a number: %w", id, v.Tokens[id], ErrVocab)
		}
		m.order[id] = fallingOrder(float32(score))
	}
	for b := range 256 {
		if m.bytes[b] = ids.find(fmt.Sprintf("<0x%02X>", b)); m.bytes[b] < 0 {
			m.bytes[b] = ids.find(string([]byte{byte(b)}))
		}
	}
	return m, nil
}

// fallingOrder maps a float to an integer that sorts the other way round.
func fallingOrder(score float32) uint32 {
	bits := math.Float32bits(score + 0) // -0 and 0 are one score
	if bits>>31 != 0 {
		return bits // negative: a larger magnitude sorts later already
	}
	return ^bits &^ (1 << 31)
}

// spmScratch holds the symbols of one piece: symbol i covers
// text[start[i]:start[i]+size[i]].
type spmScratch struct {
	start, size []int32
	prev, next  []int32
	heap        pairHeap
}

// encode appends the ids of one piece of escaped text.
func (m *spmModel) encode(sc *scratch, text string, out []int32) []int32 {
	w := &sc.spm
	w.start, w.size, w.prev, w.next, w.heap = w.start[:0], w.size[:0], w.prev[:0], w.next[:0], w.heap[:0]
	for i := 0; i < len(text); {
		n := min(leadLen(text[i]), len(text)-i)
		index := int32(len(w.start))
		w.start, w.size = append(w.start, int32(i)), append(w.size, int32(n))
		w.prev, w.next = append(w.prev, index-1), append(w.next, index+1)
		i += n
	}
	w.next[len(w.next)-1] = -1
	for i := int32(0); i+1 < int32(len(w.start)); i++ {
		if p, ok := m.candidate(w, text, i, i+1); ok {
			w.heap = append(w.heap, p)
		}
	}
	w.heap.init()
	for len(w.heap) > 0 {
		sc.limits.step()
		m.merge(w, text, w.heap.pop())
	}
	for i := int32(0); i >= 0; i = w.next[i] {
		out = m.emit(out, text[w.start[i]:w.start[i]+w.size[i]])
	}
	return out
}

// candidate is the merge of symbols left and right, if their text is a token.
// In a pairAt of this model left is the right symbol and right the joined size.
func (m *spmModel) candidate(w *spmScratch, text string, left, right int32) (pairAt, bool) {
	size := w.size[left] + w.size[right]
	id := m.ids.find(text[w.start[left] : w.start[left]+size])
	if id < 0 {
		return pairAt{}, false
	}
	return pairAt{uint64(m.order[id])<<32 | uint64(left), right, size}, true
}

func (m *spmModel) merge(w *spmScratch, text string, p pairAt) {
	left, right := int32(uint32(p.order)), p.left
	if w.size[left] == 0 || w.size[right] == 0 || w.size[left]+w.size[right] != p.right {
		return // one of the two was merged meanwhile
	}
	w.size[left] += w.size[right]
	w.size[right] = 0
	after := w.next[right]
	w.next[left] = after
	if after >= 0 {
		w.prev[after] = left
		if q, ok := m.candidate(w, text, left, after); ok {
			w.heap.push(q)
		}
	}
	if before := w.prev[left]; before >= 0 {
		if q, ok := m.candidate(w, text, before, left); ok {
			w.heap.push(q)
		}
	}
}

// emit appends the token of a final symbol, or its bytes.
func (m *spmModel) emit(out []int32, symbol string) []int32 {
	if id := m.ids.find(symbol); id >= 0 {
		return append(out, id)
	}
	for i := range len(symbol) {
		if m.bytes[symbol[i]] < 0 {
			return m.appendUnknown(out)
		}
	}
	for i := range len(symbol) {
		out = append(out, m.bytes[symbol[i]])
	}
	return out
}

func (m *spmModel) appendUnknown(out []int32) []int32 {
	unk := int32(m.vocab.UNK)
	if unk < 0 {
		return out
	}
	return append(out, unk)
}
