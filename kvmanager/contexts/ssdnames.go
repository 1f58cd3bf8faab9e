package contexts

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"terrace/internal/vfs"
)

const (
	recencyName = "recency.kv1"
	lockName    = "lock.kv1"
	suffix      = ".kv1"
	tmpSuffix   = ".kv1.tmp"
	maxSegments = 1 << 16
	maxSlots    = 1 << 12 // a segment
)

// fileKind is what a file of the folder is.
type fileKind uint8

const (
	strangeFile fileKind = iota // not ours
	segmentFile
	unfinishedFile
	foreignFile // ours, of another version
)

// parseName takes the name of a file apart.
func parseName(name string) (n int, slot int64, slots int, kind fileKind) {
	if name == recencyName || name == lockName {
		return 0, 0, 0, strangeFile
	}
	base, ok := strings.CutSuffix(name, suffix)
	if !ok {
		switch dot := strings.LastIndex(name, ".kv"); {
		case strings.HasSuffix(name, tmpSuffix):
			return 0, 0, 0, unfinishedFile
		case dot > 0:
			if _, err := strconv.Atoi(name[dot+3:]); err == nil {
				return 0, 0, 0, foreignFile
			}
		}
		return 0, 0, 0, strangeFile
	}
	if c, err := fmt.Sscanf(base, "%06d-%d-%d", &n, &slot, &slots); err != nil || c != 3 || segmentName(n, slot, slots) != name {
		return 0, 0, 0, strangeFile
	}
	if n < 0 || n >= maxSegments || slot < pageBytes || slot > maxRecordBytes || slot%pageBytes != 0 || slots < 1 || slots > maxSlots {
		return 0, 0, 0, strangeFile
	}
	return n, slot, slots, segmentFile
}

func segmentName(n int, slot int64, slots int) string {
	return fmt.Sprintf("%06d-%d-%d%s", n, slot, slots, suffix)
}

// sizeOf is a file's length; 0 where it cannot be opened.
func (s *ssd) sizeOf(name string) int64 {
	f, err := s.fs.OpenFile(filepath.Join(s.dir, name), vfs.OpenOptions{Read: true})
	if err != nil {
		return 0
	}
	n, err := f.Size()
	if f.Close() != nil || err != nil {
		return 0
	}
	return n
}

// The recency file: u64 generation, then from recencyBase on a u64 a slot, nanoseconds since 1970. Nothing depends on it: what
// is missing or nonsense is the oldest.
const recencyBase = pageBytes

func (p place) recencyOff() int64 { return recencyBase + 8*(int64(p.seg.n)*maxSlots+int64(p.slot)) }

// openRecency opens the file of hints once.
func (s *ssd) openRecency() {
	if s.recency != nil {
		return
	}
	path := filepath.Join(s.dir, recencyName)
	f, err := s.fs.OpenFile(path, vfs.OpenOptions{Create: s.readOnly == nil, Read: s.readOnly != nil})
	if err != nil {
		if f, err = s.fs.OpenFile(path, vfs.OpenOptions{Read: true}); err != nil {
			return
		}
	}
	s.recency = f
}

func (s *ssd) readWord(off int64) uint64 {
	var b [8]byte
	if s.recency == nil {
		return 0
	}
	if n, _ := s.recency.ReadAt(b[:], off); n < len(b) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

func (s *ssd) writeWord(off int64, x uint64) {
	if s.recency != nil && s.readOnly == nil {
		_, _ = s.recency.WriteAt(binary.LittleEndian.AppendUint64(nil, x), off) // a hint
	}
}

func (s *ssd) readGeneration() uint64 { return s.readWord(0) }

// usedAt is when a slot was used last, as far as is known.
func (s *ssd) usedAt(p place) time.Time {
	ns := int64(s.readWord(p.recencyOff()))
	if ns <= 0 || ns > time.Now().Add(time.Hour).UnixNano() {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func (s *ssd) touch(keys []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := uint64(time.Now().UnixNano())
	for _, k := range keys {
		if p, ok := s.index[k]; ok {
			s.writeWord(p.recencyOff(), now)
		}
	}
}
