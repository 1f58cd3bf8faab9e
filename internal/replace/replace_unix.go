//go:build !windows

package replace

import (
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// File is a file under way. Cleanup after CloseAtomicallyReplace does nothing; without it, it removes what was written.
type File = renameio.PendingFile

// New begins a file that will replace the one at path, with those permissions less the umask. It lies in the same folder until then.
func New(path string, perm os.FileMode) (*File, error) {
	return renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithPermissions(perm))
}

// WriteFile replaces a file by data; permissions are those of the file that was there, or perm less the umask.
func WriteFile(path string, data []byte, perm os.FileMode) error {
	return renameio.WriteFile(path, data, perm)
}
