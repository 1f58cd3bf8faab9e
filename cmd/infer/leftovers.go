package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// leftovers are the files and folders that a command makes beside its result. One that fails before it has put anything into
// them leaves none.
type leftovers []leftover

type leftover struct {
	path string
	own  []string // names of files in a folder that count as nothing: locks, what a run is called
}

// mayMake notes that the command is about to make a file or folder; one that is there already stays.
func (l *leftovers) mayMake(path string, own ...string) {
	if _, err := os.Lstat(path); os.IsNotExist(err) {
		*l = append(*l, leftover{path, own})
	}
}

// clear removes what has nothing in it, after a command that failed.
func (l *leftovers) clear() {
	for _, o := range *l {
		if o.empty() {
			_ = os.RemoveAll(o.path)
		}
	}
}

// empty reports whether the file, or every file in the folder but its own, has no bytes; what cannot be read is not empty.
func (o leftover) empty() bool {
	err := filepath.WalkDir(o.path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || slices.Contains(o.own, d.Name()) {
			return err
		}
		info, err := d.Info()
		if err == nil && (info.Size() > 0 || !info.Mode().IsRegular()) {
			return fs.ErrExist
		}
		return err
	})
	return err == nil
}
