package replace

import (
	"os"
	"path/filepath"
	"strings"
)

// begun lists the files beside path whose names are those of files under way that will replace it: a dot, its name, digits of a random
// number, so many at least.
func begun(path string, digits int) (names []string) {
	dir, prefix := filepath.Dir(path), "."+filepath.Base(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // who writes there will say so
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), prefix)
		if ok && len(number) >= digits && strings.Trim(number, "0123456789") == "" && e.Type().IsRegular() {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names
}
