package contexts

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"terrace/internal/storage"
	"terrace/internal/vfs"
	"terrace/kvmanager/values"
)

// ssd keeps records in files of a folder, KEY.kv2 each, read and written directly, and lock.kv2, taken by the process that writes. When a
// file was modified is when its record was used last.
type ssd struct {
	*blobs
	files folderStore
}

const (
	// folderVersion is that of what lies in a folder: kv1 had slots in segments.
	folderVersion = 2
	lockName      = "lock.kv2"
	lockWait      = 10 * time.Second
)

// openSSD opens a folder, made where it is not there. notice is one line about what the file system could not give, or what lies there.
func openSSD(fsys vfs.FS, spec Spec, readOnly bool) (s *ssd, notice string, err error) {
	folder, err := storage.OpenFolder(spec.Place, storage.Options{FS: fsys, Buffered: spec.Buffered, ReadOnly: readOnly})
	if err != nil {
		return nil, "", fmt.Errorf("contexts: %w", err)
	}
	s = &ssd{files: folderStore{folder, storage.NewRecords(folder, folderVersion, maxRecordBytes, isKey)}}
	s.blobs = newBlobs(s.files, spec.CapacityBytes, false)
	s.local = true
	if err := s.look(context.Background(), true); err != nil {
		return nil, "", err
	}
	for name := range s.known { // whether it can be read directly shows when one is
		_, _ = s.files.get(context.Background(), name, pageBytes)
		notice = folder.Notice()
		break
	}
	if s.foreign > 0 {
		notice = fmt.Sprintf("%d bytes of another version's files lie there, which count and are not read: 'infer store gc --store %s' deletes them", s.foreign, spec)
	}
	return s, notice, nil
}

// isKey reports whether a name is a key's.
func isKey(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == len(Key{}) && Key(b).String() == name
}

// has looks for records that another process may have stored since.
func (s *ssd) has(key Key) bool {
	if s.blobs.has(key) {
		return true
	}
	name := key.String()
	bytes, err := s.files.records.Size(name)
	if err != nil || s.isBroken(key) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[name].Bytes == 0 {
		s.total += bytes
		s.known[name] = values.Value{Name: name, Bytes: bytes, Used: time.Now()}
	}
	return true
}

// write notes also that those that are there were used.
func (s *ssd) write(ctx context.Context, batch []*Record) error {
	err := s.blobs.write(ctx, batch)
	keys := make([]Key, len(batch))
	for i, r := range batch {
		keys[i] = r.Key
	}
	s.touch(keys)
	return err
}

// read reports damage once: the record's file is one that may be written over.
func (s *ssd) read(ctx context.Context, key Key) (*Record, error) {
	if s.isBroken(key) {
		return nil, ErrMiss
	}
	return s.blobs.read(ctx, key)
}

// readPart implements parted.
func (s *ssd) readPart(_ context.Context, key Key, dst []byte, off int64) (int, error) {
	if s.isBroken(key) {
		return 0, ErrMiss
	}
	n, err := s.files.records.ReadPart(key.String(), dst, off)
	return n, ours(err)
}

// gc deletes also what a process that died left, and files of other versions.
func (s *ssd) gc(ctx context.Context) (freed int64, err error) {
	freed, err = s.blobs.gc(ctx)
	return freed, errors.Join(err, s.change(ctx, func() error {
		_, foreign, _, err := s.files.records.Scan()
		var names []string
		for _, x := range foreign {
			names = append(names, x.Name)
			freed += foreignBytes(x)
		}
		return errors.Join(err, s.files.records.RemoveFiles(names))
	}))
}

// foreignBytes is what a file of another version takes: that of kv1's times of use was sparse.
func foreignBytes(x vfs.Info) int64 {
	if x.Name == "recency.kv1" {
		return 0
	}
	return x.Bytes
}

// folderStore is a folder as a blobStore.
type folderStore struct {
	folder  *storage.Folder
	records *storage.Records
}

// ours turns a folder's answer into a tier's.
func ours(err error) error {
	switch {
	case errors.Is(err, storage.ErrMissing):
		return ErrMiss
	case errors.Is(err, storage.ErrCorrupt), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("contexts: %w: %w", err, ErrDamaged)
	case errors.Is(err, storage.ErrReadOnly):
		return fmt.Errorf("contexts: %w: %w", err, ErrReadOnly)
	case err != nil:
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}

func (s folderStore) get(_ context.Context, name string, most int64) ([]byte, error) {
	b, err := s.records.Get(name, most)
	return b, ours(err)
}

func (s folderStore) put(_ context.Context, list []*Record) (int, error) {
	now, values := time.Now(), make([]storage.Value, len(list))
	for i, r := range list {
		values[i] = storage.Value{Name: r.Key.String(), Bytes: r.Raw(), Used: now.Add(-time.Duration(i))}
	}
	n, err := s.records.Put(values)
	return n, ours(err)
}

func (s folderStore) del(_ context.Context, list []values.Value) error {
	names := make([]string, len(list))
	for i, b := range list {
		names[i] = b.Name
	}
	return ours(s.records.Remove(names...))
}

func (s folderStore) index(context.Context) (list []values.Value, foreign int64, err error) {
	records, others, unfinished, err := s.records.Scan()
	for _, x := range records {
		list = append(list, values.Value{Name: x.Name, Bytes: x.Bytes, Used: x.Modified})
	}
	for _, x := range append(others, unfinished...) {
		foreign += foreignBytes(x)
	}
	return list, foreign, ours(err)
}

func (s folderStore) used(_ context.Context, list []values.Value) error {
	for _, b := range list {
		s.records.Touch(b.Name, b.Used)
	}
	return nil
}

// turn takes the folder's lock, and removes what a process that died left unfinished.
func (s folderStore) turn(ctx context.Context) (io.Closer, error) {
	l, err := s.folder.Lock(ctx, lockName, lockWait)
	if err != nil {
		return nil, ours(err)
	}
	s.records.Forget()
	_, _, unfinished, err := s.records.Scan()
	var names []string
	for _, x := range unfinished {
		names = append(names, x.Name)
	}
	if err = errors.Join(err, s.records.RemoveFiles(names)); err != nil {
		return nil, errors.Join(ours(err), l.Close())
	}
	return l, nil
}

func (s folderStore) close() error {
	s.records.Forget()
	return nil
}
