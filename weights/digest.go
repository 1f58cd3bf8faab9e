package weights

import (
	"crypto/sha256"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"terrace/weights/mapped"
)

// digestPiece is how much of a tensor is hashed at a time.
const digestPiece = 4 << 20

// Digest names the model by all that it says: metadata, names, types, shapes and every byte of the tensors. It is SHA-256 over the
// SHA-256 sums of pieces of 4 MiB, which are taken in parallel; it reads all weights once. Errors wrap ErrFileChanged, or are
// those of tensors that cannot be read.
func (m *Model) Digest() (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	if _, err := m.meta.WriteTo(h); err != nil {
		return sum, err
	}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	var sums []*[sha256.Size]byte
	for _, t := range m.tensors {
		fmt.Fprintf(h, "%q %v %v\n", t.Name, t.Type, t.Shape)
		for _, part := range t.Parts() {
			data := part.Raw()
			if data == nil {
				_, err := part.Bytes()
				return sum, fmt.Errorf("weights: %s: %w", m.path, err)
			}
			for len(data) > 0 {
				piece, at := data[:min(len(data), digestPiece)], new([sha256.Size]byte)
				data, sums = data[len(piece):], append(sums, at)
				group.Go(func() error {
					return mapped.Guard(func() error { *at = sha256.Sum256(piece); return nil })
				})
			}
		}
	}
	if err := group.Wait(); err != nil {
		return sum, fmt.Errorf("weights: %s: %w", m.path, err)
	}
	for _, s := range sums {
		h.Write(s[:])
	}
	return [sha256.Size]byte(h.Sum(nil)), m.CheckUnchanged()
}
