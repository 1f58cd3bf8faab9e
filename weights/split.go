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
		return m.splitErrorf("split.count: %w", err)
	}
	if count < 1 || count > maxParts {
		return m.splitErrorf("split.count is %d, want 1 to %d", count, maxParts)
	}
	paths, err := m.partPaths(count)
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
			return m.splitErrorf("part %d: %w", i+1, err)
		}
		n, err := part.Meta().Int("split.count")
		if err != nil || no != i || n != count {
			return m.splitErrorf("%s says split.no %d of %d, want %d of %d", filepath.Base(path), no, n, i, count)
		}
	}
	if totalErr == nil && total != len(m.tensors) {
		return m.splitErrorf("the parts hold %d tensors, split.tensors.count says %d", len(m.tensors), total)
	}
	return nil
}

// partPaths names the parts; a single-part model may have any name.
func (m *Model) partPaths(count int) ([]string, error) {
	if count == 1 {
		return []string{m.path}, nil
	}
	name := partName.FindStringSubmatch(filepath.Base(m.path))
	if name == nil {
		return nil, m.splitErrorf("one of %d parts, want a name that ends in -00001-of-%05d.gguf", count, count)
	}
	if n, err := strconv.Atoi(name[3]); err != nil || n != count {
		return nil, m.splitErrorf("the name says %s parts, split.count %d", name[3], count)
	}
	paths := make([]string, count)
	for i := range paths {
		paths[i] = filepath.Join(filepath.Dir(m.path), fmt.Sprintf("%s-%05d-of-%05d.gguf", name[1], i+1, count))
		if _, err := os.Stat(paths[i]); err != nil {
			return nil, m.splitErrorf("part %d of %d is missing: %w", i+1, count, err)
		}
	}
	return paths, nil
}

func (m *Model) splitErrorf(format string, args ...any) error {
	return formatError{fmt.Errorf("weights: %s: "+format, append([]any{m.path}, args...)...)}
}
