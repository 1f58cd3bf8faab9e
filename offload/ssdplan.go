package offload

import (
	"fmt"
	"slices"

	"terrace/internal/storage"
	"terrace/internal/vfs"
)

// ssdJob is one operation on the file: records that lie side by side, or nearly so.
type ssdJob struct {
	io    vfs.IO
	segs  []segment
	stage []byte // for gaps and for records whose memory is not aligned, while under way
	bytes int    // of stage
	huge  bool   // stage is of a huge page
	tr    *transfer
}

// segment is one record's share of a job.
type segment struct {
	rec    *Record
	seq    *sequence
	off    int64 // on the device, aligned
	size   int   // on the device, aligned
	skip   int   // from off to the first byte asked for
	direct bool  // between device and Data without staging
	mark   uint32
	sums   []uint32 // of the pages of the part, or of the rows: expected in reads, computed in writes

	tokens   []int32 // single tokens, of rec's group (planTokens)
	at, from int     // the first of them in the list that was asked for; where the segment begins in the record
}

// maxSegments of a job: vectors of one operation.
const maxSegments = 128

// plan turns records into jobs: sorted by place, neighbours merged. It pins their sequences; each job must be launched or
// abandoned.
func (s *SSD) plan(recs []Record, dir int) ([]*transfer, error) {
	segs := make([]segment, len(recs))
	per := 0
	for i := range recs {
		per += s.sumsPer(int(recs[i].Key.Layer))
	}
	sums := make([]uint32, per)
	for i := range recs {
		n := s.sumsPer(int(recs[i].Key.Layer))
		segs[i] = s.segment(&recs[i])
		segs[i].sums, sums = sums[:n:n], sums[n:]
		if dir == 1 {
			s.checksums(&segs[i], recs[i].Data)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("offload: ssd %s: %w", s.opt.Dir, ErrClosed)
	}
	if dir == 1 {
		if err := s.allot(recs); err != nil {
			return nil, err
		}
	}
	if err := s.locateAll(segs, dir); err != nil {
		return nil, err
	}
	return s.merge(segs, dir, s.opt.MergeGapBytes, s.opt.MaxIOBytes), nil
}

// locateAll locates segments, all or none, and sorts them by place. s.mu is held.
func (s *SSD) locateAll(segs []segment, dir int) error {
	for i := range segs {
		if err := s.locate(&segs[i], dir); err != nil {
			for j := range i {
				s.unpin(segs[j].seq)
			}
			return err
		}
	}
	slices.SortFunc(segs, func(a, b segment) int { return int(min(max(a.off-b.off, -1), 1)) })
	return nil
}

// segment works out a record's aligned share of its place, relative to its beginning.
func (s *SSD) segment(r *Record) segment {
	layer := int(r.Key.Layer)
	if s.byRow {
		return segment{rec: r, size: storage.RoundUp(s.shape.RecordBytes(layer), s.align)}
	}
	from, size := s.shape.span(layer, r.Part)
	lo := from / s.align * s.align
	hi := storage.RoundUp(from+size, s.align)
	return segment{rec: r, off: int64(lo), size: hi - lo, skip: from - lo,
		direct: from == lo && size == hi-lo && vfs.Aligned(r.Data, s.align)}
}

// locate adds the record's place and, in reads, its checksums, and pins its sequence. s.mu is held.
func (s *SSD) locate(g *segment, dir int) error {
	k := g.rec.Key
	q := s.seqs[k.Seq]
	if dir == 0 && (q == nil || q.state(k)&1 == 0) {
		return fmt.Errorf("offload: ssd %s: %v: %w", s.opt.Dir, k, ErrMissing)
	}
	g.off += s.place.offset(q.extent(int(k.Layer), s.place.index(k)), k)
	g.seq = q
	if dir == 1 {
		g.mark = s.begin(q, k)
	} else {
		g.mark = q.state(k)
		first, n := s.headsOf(int(k.Layer), g.rec.Part)
		if s.byRow {
			first, n = 0, s.shape.GroupTokens
		}
		at := int(k.Group)*s.sumsPer(int(k.Layer)) + first
		g.sums = g.sums[:copy(g.sums, q.layers[k.Layer].sums[at:at+n])]
	}
	q.pins++
	s.pins++
	return nil
}

func (s *SSD) headsOf(layer int, p Part) (first, n int) {
	if p.N == 0 {
		return 0, s.shape.KVHeads(layer)
	}
	return int(p.First), int(p.N)
}

// merge cuts sorted segments into jobs of at most maxBytes, reading over gaps of at most gapBytes.
func (s *SSD) merge(segs []segment, dir, gapBytes, maxBytes int) (trs []*transfer) {
	for len(segs) > 0 {
		first := segs[0].off
		end := first + int64(segs[0].size)
		n := 1
		for ; n < len(segs) && n < maxSegments; n++ {
			next, padding := &segs[n], s.padding(int(segs[n-1].rec.Key.Layer))
			gap := max(padding, int64(gapBytes))
			between := next.off - end
			if between < 0 || between > gap || dir == 1 && between != 0 && between != padding || next.off+int64(next.size)-first > int64(maxBytes) {
				break
			}
			end = next.off + int64(next.size)
		}
		j := &ssdJob{segs: segs[:n:n]}
		j.io = vfs.IO{Write: dir == 1, Off: first, Done: s.done, Owner: j}
		tr := &transfer{dir: dir, records: n, job: j}
		for i := range j.segs {
			tr.bytes += s.askedBytes(&j.segs[i])
			if !j.segs[i].direct {
				j.bytes += j.segs[i].size
			}
			if i > 0 && dir == 0 {
				j.bytes += int(j.segs[i].off - j.segs[i-1].off - int64(j.segs[i-1].size))
			}
		}
		tr.device = end - first
		j.tr = tr
		trs = append(trs, tr)
		segs = segs[n:]
	}
	return trs
}

// padding is what lies between two records of a layer.
func (s *SSD) padding(layer int) int64 {
	return int64(s.place.layers[layer].strideBytes - storage.RoundUp(s.shape.RecordBytes(layer), s.align))
}

// askedBytes is what a segment's caller gets of it.
func (s *SSD) askedBytes(g *segment) int64 {
	if g.tokens != nil {
		return int64(len(g.tokens) * s.rows[g.rec.Key.Layer].bytes)
	}
	return int64(len(g.rec.Data))
}

// checksums computes the CRC of each page of a record, or of each row.
func (s *SSD) checksums(g *segment, data []byte) {
	if s.byRow {
		s.rowSums(g, data)
		return
	}
	size := s.shape.HeadBytes(int(g.rec.Key.Layer))
	for h := range len(data) / size {
		g.sums[h] = storage.Checksum(data[h*size : (h+1)*size])
	}
}

// verify reports the first page of a record's part whose checksum is wrong.
func (s *SSD) verify(g *segment) error {
	size := s.shape.HeadBytes(int(g.rec.Key.Layer))
	for h, want := range g.sums {
		if got := storage.Checksum(g.rec.Data[h*size : (h+1)*size]); got != want {
			return fmt.Errorf("offload: ssd %s: %v head %d: checksum %08x, want %08x: %w", s.opt.Dir, g.rec.Key, int(g.rec.Part.First)+h, got, want, ErrCorrupt)
		}
	}
	return nil
}
