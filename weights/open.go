package weights

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"terrace/weights/gguf"
	"terrace/weights/hf"
	"terrace/weights/mapped"
)

// Open opens a GGUF file, any part of a split one (NAME-00001-of-000NN.gguf), or a folder with config.json and safetensors.
// Only headers are read. Errors wrap ErrFormat, ErrUnsupported, ErrFileChanged or those of the system, and name the file.
func Open(path string) (*Model, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	m := &Model{path: path, format: "gguf", byName: map[string]*Tensor{}}
	if st.IsDir() {
		m.format = "safetensors"
		err = m.openFolder()
	} else {
		err = m.openGGUF()
	}
	if err == nil {
		err = m.index()
	}
	if err == nil && m.format == "gguf" {
		err = m.foldScales()
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// openGGUF opens the file with its other parts, if it is split.
func (m *Model) openGGUF() error {
	first, err := gguf.Open(m.path)
	if err != nil {
		return err
	}
	if !first.Meta().Has("split.count") {
		m.addPart(first)
		m.meta = first.Meta()
		return nil
	}
	return m.openSplit(first)
}

func (m *Model) addPart(f *gguf.File) {
	m.closers = append(m.closers, f)
	m.checks = append(m.checks, f.CheckUnchanged)
	m.size += f.SizeBytes()
	m.tensors = append(m.tensors, f.Tensors()...)
}

// openFolder opens a Hugging Face folder.
func (m *Model) openFolder() error {
	meta, tensors, closer, err := hf.Open(m.path)
	if err != nil {
		return formatError{err}
	}
	m.meta, m.tensors = meta, tensors
	m.closers = append(m.closers, closer)
	if parts, ok := closer.(interface{ Unread() []string }); ok {
		if names := parts.Unread(); len(names) > 0 {
			m.notices = append(m.notices, fmt.Sprintf("%s: images and sound are not read (%s), the text model is used", m.path, strings.Join(names, ", ")))
		}
	}
	files, err := os.ReadDir(m.path)
	if err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	for _, file := range files {
		if filepath.Ext(file.Name()) != ".safetensors" {
			continue
		}
		stamp, err := mapped.Stamp(filepath.Join(m.path, file.Name()))
		if err != nil {
			return err
		}
		m.size += stamp.SizeBytes()
		m.checks = append(m.checks, stamp.CheckUnchanged)
	}
	return nil
}

// index finds tensors by name; a name in two files is an error.
func (m *Model) index() error {
	for _, t := range m.tensors {
		if m.byName[t.Name] != nil {
			return fmt.Errorf("weights: %s: duplicate tensor %q: %w", m.path, t.Name, ErrFormat)
		}
		m.byName[t.Name] = t
	}
	return nil
}
