package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// modelName is the name that results carry: of a path only the last part, so that machines agree on it.
func modelName(name string) string {
	if _, err := os.Stat(name); err == nil {
		return filepath.Base(filepath.Clean(name))
	}
	return name
}

// nameOfAll is the name that results carry, with those of the adapters.
func (l *loaded) nameOfAll() string {
	name := modelName(l.name)
	for _, a := range l.adapters {
		name += fmt.Sprintf("+%s", filepath.Base(filepath.Clean(a.Path)))
		if a.Scale != 1 {
			name += fmt.Sprintf("=%g", a.Scale)
		}
	}
	return name
}

// fingerprint identifies the model's files, and the adapters' with their scales.
func (l *loaded) fingerprint() (string, error) {
	model, err := fingerprint(l.path)
	if err != nil || len(l.adapters) == 0 {
		return model, err
	}
	h := sha256.New()
	fmt.Fprintln(h, model)
	for _, a := range l.adapters {
		adapter, err := fingerprint(a.Path)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, adapter, a.Scale)
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}

// fingerprint identifies model files by name-free content: size and a hash of the first and last MiB of a file, or of
// every weights and configuration file of a folder.
func fingerprint(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", dataErrorf("%v", err)
	}
	files := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return "", dataErrorf("%v", err)
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
			return "", dataErrorf("%v", err)
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
