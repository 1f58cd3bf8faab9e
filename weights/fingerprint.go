package weights

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Fingerprint identifies a model by the contents of its files and of its adapters', with their scales, whatever they are called: sizes, and
// hashes of the first and last MiB, of a file or of every weights and configuration file of a folder. 24 hexadecimal digits. Errors are the
// system's.
func Fingerprint(path string, adapters ...Adapter) (string, error) {
	model, err := fingerprint(path)
	if err != nil || len(adapters) == 0 {
		return model, err
	}
	h := sha256.New()
	fmt.Fprintln(h, model)
	for _, a := range adapters {
		adapter, err := fingerprint(a.Path)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, adapter, a.Scale)
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}

// fingerprint identifies a file or folder.
func fingerprint(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	files := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return "", err
		}
		files = nil
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); ext == ".safetensors" || ext == ".json" {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	h := sha256.New()
	for _, name := range files {
		if err := hashEnds(h, name); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}

func hashEnds(h io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintln(h, info.Size())
	const end = 1 << 20
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, end)); err != nil {
		return err
	}
	_, err = io.Copy(h, io.NewSectionReader(f, max(0, info.Size()-end), end))
	return err
}
