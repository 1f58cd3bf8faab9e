package offload

import (
	"fmt"

	"terrace/internal/storage"
)

// rows is how a record lies on the device where SSDOptions.TokenRows is set: token by token, each the key and the value of one
// KV head after another, so that a token is read alone. A row has a checksum of its own.
type rows struct {
	bytes      int // of a row; 0 = records lie as they are in memory
	key, value int // of it, those of one KV head
}

func newRows(s Shape, o SSDOptions) ([]rows, error) {
	all := make([]rows, len(s.Layers))
	if !o.TokenRows {
		return all, nil
	}
	p := s.Page
	if !p.TokenMajor || p.K.Quantised() || p.V.Quantised() || s.GroupTokens != p.Tokens {
		return nil, fmt.Errorf("offload: ssd %s: rows of single tokens from records of %v, %d tokens: want one page a head and keys of a float type, token by token: %w",
			o.Dir, p, s.GroupTokens, ErrShape)
	}
	for layer := range all {
		if !s.Layers.Keeps(layer) {
			continue
		}
		l, r := s.PageOf(layer), &all[layer]
		r.key, r.value = l.KBytes()/l.Tokens, l.VBytes()/l.Tokens
		r.bytes = s.KVHeads(layer) * (r.key + r.value)
	}
	return all, nil
}

// sumsPer is the number of checksums of a layer's record: one a KV head, or one a token.
func (s *SSD) sumsPer(layer int) int {
	if s.byRow {
		return s.shape.GroupTokens
	}
	return s.shape.KVHeads(layer)
}

// pieces calls each with the key and the value of every KV head of a token in a layer's record as it lies in memory.
func (s *SSD) pieces(layer int, data []byte, token int, each func(piece []byte)) {
	l, size := s.shape.PageOf(layer), s.shape.HeadBytes(layer)
	for h := range len(data) / size {
		page := data[h*size : (h+1)*size]
		each(l.KRow(page, token))
		if !l.ValueInKey {
			each(l.VRow(page, token))
		}
	}
}

// pack lays a layer's record out as rows.
func (s *SSD) pack(layer int, dst, data []byte) {
	for token := range s.shape.GroupTokens {
		s.pieces(layer, data, token, func(piece []byte) { dst = dst[copy(dst, piece):] })
	}
	clear(dst)
}

// unpackRow puts heads first to first+n-1 of a row in their places in a record, or a part of one, of those heads.
func (s *SSD) unpackRow(layer int, data, row []byte, token, first int) {
	r, l := &s.rows[layer], s.shape.PageOf(layer)
	k, v, size, valuesAt := r.key, r.value, s.shape.HeadBytes(layer), l.KBytes()
	row = row[first*(k+v):]
	for ; len(data) >= size; data, row = data[size:], row[k+v:] { // as pieces does
		copy(data[token*k:(token+1)*k], row[:k])
		copy(data[valuesAt+token*v:][:v], row[k:k+v])
	}
}

// unpack takes a segment's tokens out of the bytes that were read from its place on; ErrCorrupt where a row is not what was
// written.
func (s *SSD) unpack(g *segment, stage []byte) error {
	layer := int(g.rec.Key.Layer)
	rowBytes := s.rows[layer].bytes
	if g.tokens != nil {
		per := s.shape.GroupTokens
		for i, token := range g.tokens {
			row := stage[int(token)%per*rowBytes-g.from:][:rowBytes]
			if err := s.checkRow(g, row, int(token)%per); err != nil {
				return err
			}
			at := g.at + i
			s.unpackRow(layer, g.rec.Data[at/per*s.shape.RecordBytes(layer):][:s.shape.RecordBytes(layer)], row, at%per, 0)
		}
		return nil
	}
	first, _ := s.headsOf(layer, g.rec.Part)
	for token := range s.shape.GroupTokens {
		row := stage[token*rowBytes:][:rowBytes]
		if err := s.checkRow(g, row, token); err != nil {
			return err
		}
		s.unpackRow(layer, g.rec.Data, row, token, first)
	}
	return nil
}

func (s *SSD) checkRow(g *segment, row []byte, token int) error {
	if got, want := storage.Checksum(row), g.sums[token]; got != want {
		return fmt.Errorf("offload: ssd %s: %v token %d: checksum %08x, want %08x: %w", s.opt.Dir, g.rec.Key, token, got, want, ErrCorrupt)
	}
	return nil
}

// rowSums computes the checksums of a record's rows.
func (s *SSD) rowSums(g *segment, data []byte) {
	for token := range g.sums {
		g.sums[token] = 0
		s.pieces(int(g.rec.Key.Layer), data, token, func(piece []byte) { g.sums[token] = storage.ChecksumMore(g.sums[token], piece) })
	}
}

// gatherGapBytes is what may lie between two tokens that are read in one operation where nothing was measured (SSDOptions.GapBytes), and
// gatherBytes how much one reads at most: an operation costs about what 40 KiB more cost, most of it time of the cores that compute. At
// HillInfer's operating point (batch 8, alpha=0.2, docs/benchmarks/tiers.md) gaps of 12 KiB gave 24.1 tokens/s, of 32 KiB 31.6, of 64 KiB in
// operations of 128 KiB 32.1, of 256 KiB 23.7 (one run each).
const (
	gatherGapBytes = 32 << 10
	gatherBytes    = 64 << 10
)

// gathers reports whether single tokens can be read.
func (s *SSD) gathers() bool { return s.byRow }

// planTokens is plan of single tokens of a layer of a sequence, given by rising index (group·GroupTokens + place): they go to
// dst one after another in ⌈n/GroupTokens⌉ records, as if they were the only ones.
func (s *SSD) planTokens(seq uint64, layer int, tokens []int32, dst []byte) ([]*transfer, error) {
	if layer < 0 || layer >= len(s.shape.Layers) || !s.gathers() || len(dst) != s.shape.tokensBytes(layer, len(tokens)) {
		return nil, fmt.Errorf("offload: ssd %s: %d tokens of layer %d into %d bytes: %w", s.opt.Dir, len(tokens), layer, len(dst), ErrShape)
	}
	segs := s.runs(seq, layer, tokens, dst)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("offload: ssd %s: %w", s.opt.Dir, ErrClosed)
	}
	if err := s.locateAll(segs, 0); err != nil {
		return nil, err
	}
	s.stage.Trim(s.gatherMost()) // steps that read single tokens have no use for what large operations left
	return s.merge(segs, 0, s.opt.GapBytes, s.gatherMost()), nil
}

// gatherMost is how much one operation reads at most of single tokens.
func (s *SSD) gatherMost() int { return max(smallBytes, min(gatherBytes, s.opt.MaxIOBytes)) }

// runs cuts tokens into segments: those of a group with small gaps between them.
func (s *SSD) runs(seq uint64, layer int, tokens []int32, dst []byte) []segment {
	per, gap, sums := int32(s.shape.GroupTokens), s.opt.GapBytes, make([]uint32, len(tokens)*s.shape.GroupTokens)
	rowBytes := s.rows[layer].bytes
	recs, segs := make([]Record, 0, len(tokens)), make([]segment, 0, len(tokens))
	for i := 0; i < len(tokens); {
		first := int(tokens[i]%per) * rowBytes
		lo := first / s.align * s.align
		hi, j := storage.RoundUp(first+rowBytes, s.align), i+1
		for ; j < len(tokens) && tokens[j]/per == tokens[i]/per; j++ {
			next := int(tokens[j]%per) * rowBytes
			end := storage.RoundUp(next+rowBytes, s.align)
			if from := next / s.align * s.align; from >= hi && (from-hi > gap || end-lo > s.gatherMost()) {
				break
			}
			hi = end
		}
		recs = append(recs, Record{Key: Key{Seq: seq, Layer: int32(layer), Group: tokens[i] / per}, Data: dst})
		k := len(segs) * int(per)
		segs = append(segs, segment{rec: &recs[len(recs)-1], off: int64(lo), size: hi - lo, from: lo, tokens: tokens[i:j:j], at: i, sums: sums[k : k+int(per) : k+int(per)]})
		i = j
	}
	return segs
}

// smallBytes is the size of staging for operations of few bytes: single tokens, single records.
const smallBytes = 16 << 10

// newStaging has pieces for single records, for single tokens, where it can of a huge page, and for the largest operation.
func (s *SSD) newStaging() *storage.Staging {
	most, huge := s.gatherMost(), 0
	if s.byRow && most == gatherBytes {
		huge = most
	}
	return storage.NewStaging(huge, smallBytes, most, s.opt.MaxIOBytes)
}
