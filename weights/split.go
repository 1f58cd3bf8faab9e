package weights

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"terrace/weights/gguf"
)

// maxParts is more than any model is split into.
const maxParts = 10000

var partName = regexp.MustCompile(`^(.+)-(\d{5})-of-(\d{5})\.gguf$`)

// openSplit opens all parts of a split model, of which one is open already (and closed again here). The first part's
// metadata is the model's.
func (m *Model) openSplit(given *gguf.File) error {
	count, err := given.Meta().Int("split.count")
	total, totalErr := given.Meta().Int("split.tensors.count")
	if closeErr := given.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return splitErrorf(m.path, "split.count: %w", err)
	}
	if count < 1 || count > maxParts {
		return splitErrorf(m.path, "split.count is %d, want 1 to %d", count, maxParts)
	}
	paths, err := partPaths(m.path, count)
	if err != nil {
		return err
	}
	for i, path := range paths {
		part, err := gguf.Open(path)
		if err != nil {
			return fmt.Errorf("weights: part %d of %d: %w", i+1, count, err)
		}
		m.addPart(part)
		if i == 0 {
			m.meta = part.Meta()
		}
		no, err := part.Meta().Int("split.no")
		if err != nil {
			return splitErrorf(m.path, "part %d: %w", i+1, err)
		}
		n, err := part.Meta().Int("split.count")
		if err != nil || no != i || n != count {
			return splitErrorf(m.path, "%s says split.no %d of %d, want %d of %d", filepath.Base(path), no, n, i, count)
		}
	}
	if totalErr == nil && total != len(m.tensors) {
		return splitErrorf(m.path, "the parts hold %d tensors, split.tensors.count says %d", len(m.tensors), total)
	}
	return nil
}

// partPaths names the parts; a single-part model may have any name.
func partPaths(path string, count int) ([]string, error) {
	if count == 1 {
		return []string{path}, nil
	}
	name := partName.FindStringSubmatch(filepath.Base(path))
	if name == nil {
		return nil, splitErrorf(path, "one of %d parts, want a name that ends in -00001-of-%05d.gguf", count, count)
	}
	if n, err := strconv.Atoi(name[3]); err != nil || n != count {
		return nil, splitErrorf(path, "the name says %s parts, split.count %d", name[3], count)
	}
	paths := make([]string, count)
	for i := range paths {
		paths[i] = filepath.Join(filepath.Dir(path), fmt.Sprintf("%s-%05d-of-%05d.gguf", name[1], i+1, count))
		if _, err := os.Stat(paths[i]); err != nil {
			return nil, splitErrorf(path, "part %d of %d is missing: %w", i+1, count, err)
		}
	}
	return paths, nil
}

func splitErrorf(path, format string, args ...any) error {
	return formatError{fmt.Errorf("weights: %s: "+format, append([]any{path}, args...)...)}
}
