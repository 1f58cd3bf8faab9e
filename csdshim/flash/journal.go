package flash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"terrace/internal/vfs"
)

// journal is a file of frames: u32 magic, u32 payload bytes, u64 ordinal, u64 ordinal of the last frame known to be durable
// when this one was written, u32 CRC-32C over both ordinals and payload, payload. A frame is the records of one commit;
// ordinals rise by one.
type journal struct {
	file    vfs.File
	path    string
	end     int64
	ordinal uint64 // of the last frame
	durable uint64 // of the last frame that was synced
}

const (
	frameMagic = 0x314a5354 // "TSJ1"
	frameHead  = 28
	// maxFrame bounds what a damaged length can make the reader allocate.
	maxFrame = 256 << 20
)

func frame(ordinal, durable uint64, payload []byte) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(le.AppendUint32(make([]byte, 0, frameHead+len(payload)), frameMagic), uint32(len(payload)))
	b = le.AppendUint64(le.AppendUint64(b, ordinal), durable)
	b = le.AppendUint32(b, frameSum(b, payload))
	return append(b, payload...)
}

// frameSum is the checksum of a frame with that head.
func frameSum(head, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[8:24], castagnoli), castagnoli, payload)
}

// append writes a frame at the end; with sync it is durable afterwards.
func (j *journal) append(payload []byte, sync bool) error {
	b := frame(j.ordinal+1, j.durable, payload)
	if err := vfs.WriteFull(j.file, [][]byte{b}, j.end); err != nil {
		return fmt.Errorf("csdshim: flash: journal: %w", err)
	}
	if sync {
		if err := j.file.Sync(); err != nil {
			return fmt.Errorf("csdshim: flash: journal: sync: %w", err)
		}
	}
	j.end += int64(len(b))
	j.ordinal++
	if sync {
		j.durable = j.ordinal
	}
	return nil
}

// openJournal reads the frames of a file one by one and leaves the journal ready to append. A torn end is cut off.
func openJournal(fs vfs.FS, path string, each func(payload []byte) error) (*journal, error) {
	f, err := fs.OpenFile(path, vfs.OpenOptions{Create: true})
	if err != nil {
		return nil, err
	}
	j := &journal{file: f, path: path}
	for {
		payload, ordinal, size, err := j.read(j.end, j.ordinal)
		if err == nil && size > 0 {
			err = each(payload)
		}
		switch {
		case errors.Is(err, errTorn):
			if err := j.cut(); err != nil {
				f.Close()
				return nil, err
			}
			return j, nil
		case err != nil:
			f.Close()
			return nil, err
		case size == 0:
			return j, nil
		}
		j.end, j.ordinal = j.end+size, ordinal
	}
}

var errTorn = errors.New("torn frame")

// read returns payload, ordinal and size of the frame at off; size 0 at the end of the file. after is the ordinal of the
// frame before, 0 where there is none.
func (j *journal) read(off int64, after uint64) (payload []byte, ordinal uint64, size int64, err error) {
	var head [frameHead]byte
	n, err := j.file.ReadAt(head[:], off)
	switch {
	case n == 0 && (err == io.EOF || err == io.ErrUnexpectedEOF):
		return nil, 0, 0, nil
	case err != nil && err != io.EOF && err != io.ErrUnexpectedEOF:
		return nil, 0, 0, fmt.Errorf("csdshim: flash: journal: %w", err)
	case n < frameHead:
		return nil, 0, 0, errTorn
	}
	le := binary.LittleEndian
	length := le.Uint32(head[4:])
	if le.Uint32(head[:]) != frameMagic || length > maxFrame {
		return nil, 0, 0, errTorn
	}
	payload, err = io.ReadAll(io.NewSectionReader(j.file, off+frameHead, int64(length)))
	if err != nil {
		return nil, 0, 0, fmt.Errorf("csdshim: flash: journal: %w", err)
	}
	if len(payload) < int(length) || frameSum(head[:], payload) != le.Uint32(head[24:]) {
		return nil, 0, 0, errTorn
	}
	if ordinal = le.Uint64(head[8:]); after != 0 && ordinal != after+1 {
		return nil, 0, 0, errTorn
	}
	return payload, ordinal, frameHead + int64(length), nil
}

// cut removes what follows the last whole frame. Unsynced frames may be missing in any order after a power failure; but
// where a later frame knows that the missing one was durable, acknowledged groups would be lost in silence: ErrCorrupt.
func (j *journal) cut() error {
	rest, err := io.ReadAll(io.NewSectionReader(j.file, j.end, 1<<62))
	if err != nil {
		return fmt.Errorf("csdshim: flash: journal: %w", err)
	}
	le := binary.LittleEndian
	for i := 1; i+frameHead <= len(rest); i++ {
		head := rest[i : i+frameHead]
		n := int(le.Uint32(head[4:]))
		if le.Uint32(head) != frameMagic || n > len(rest)-i-frameHead || frameSum(head, rest[i+frameHead:][:n]) != le.Uint32(head[24:]) {
			continue
		}
		if durable := le.Uint64(head[16:]); durable > j.ordinal {
			return fmt.Errorf("csdshim: flash: %s: damaged at byte %d, with whole records from byte %d on: restore the folder or delete it: %w", j.path, j.end, j.end+int64(i), ErrCorrupt)
		}
	}
	if err := j.file.Truncate(j.end); err != nil {
		return fmt.Errorf("csdshim: flash: journal: %w", err)
	}
	return nil
}

// replace writes a journal of some frames in place of this one, atomically.
func (j *journal) replace(fs vfs.FS, payloads [][]byte) error {
	temp := j.path + ".new"
	if err := remove(fs, temp); err != nil {
		return err
	}
	f, err := fs.OpenFile(temp, vfs.OpenOptions{Create: true})
	if err != nil {
		return err
	}
	next := &journal{file: f, path: j.path, ordinal: j.ordinal, durable: j.durable}
	for i, p := range payloads {
		if err == nil {
			err = next.append(p, i == len(payloads)-1)
		}
	}
	if err == nil {
		err = fs.Rename(temp, j.path)
	}
	if err != nil {
		f.Close()
		_ = remove(fs, temp)
		return fmt.Errorf("csdshim: flash: journal: compacting: %w", err)
	}
	j.file.Close()
	*j = *next
	return nil
}
