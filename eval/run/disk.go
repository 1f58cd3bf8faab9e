package run

import (
	"io"
	"os"
	"path/filepath"

	"terrace/internal/replace"
)

// disk is where a run's files lie: the system's, or in tests one whose power fails.
type disk interface {
	// ReadFile reads a whole file; os.ErrNotExist where there is none.
	ReadFile(path string) ([]byte, error)
	// Replace writes a file whole and makes it durable; folders above it are made. Whoever reads it, after a loss of power too, finds
	// what was there before or all of data.
	Replace(path string, data []byte) error
	// Records opens or makes a file that is read and then written on.
	Records(path string) (records, error)
}

// records is samples.jsonl. What was written before a Sync survives a loss of power; of what came after it all, a part or nothing.
type records interface {
	io.ReadWriteSeeker
	Truncate(size int64) error
	Sync() error
	Close() error
}

// systemDisk is the machine's.
type systemDisk struct{}

func (systemDisk) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

func (systemDisk) Replace(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return replace.WriteFile(path, data, 0o644)
}

func (systemDisk) Records(path string) (records, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
}
