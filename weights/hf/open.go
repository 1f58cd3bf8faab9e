package hf

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"terrace/weights/gguf"
	"terrace/weights/strictjson"
)

const (
	configName = "config.json"
	// maxConfigBytes bounds config.json; real ones have a few KB.
	maxConfigBytes = 4 << 20
)

// Open presents the Hugging Face model folder dir (see the package comment). Only the headers of the weight files are read;
// the closer unmaps them, after which the tensors must not be used; it also has SizeBytes() int64 and CheckUnchanged() error
// over all weight files. Errors wrap ErrConfig, ErrUnknownArchitecture,
// ErrQuantized, ErrMissingTensor, ErrShape, ErrNoWeights, ErrOutside or what package safetensors returns.
func Open(dir string) (*gguf.Meta, []*gguf.Tensor, io.Closer, error) {
	config, err := readObject(dir, configName, maxConfigBytes)
	if err != nil {
		return nil, nil, nil, err
	}
	v := newView(config)
	v.dir = dir
	f := v.family()
	if f != nil {
		v.arch = f.arch
		v.meta.Set("general.architecture", f.arch)
		v.meta.Set("general.name", folderName(dir))
		f.figures(v)
	}
	if err := v.err(dir); err != nil {
		return nil, nil, nil, err
	}
	if v.files, err = openShards(dir); err != nil {
		return nil, nil, nil, err
	}
	v.unpackStored()
	if err := v.err(dir); err != nil {
		return nil, nil, nil, closed(err, v.files)
	}
	v.prefix = v.files.stem("model.embed_tokens.weight", v.prefixes()...)
	if f.tensors(v); len(v.faults.list) == 0 {
		v.refuseUnreadBias()
	}
	if err := v.err(dir); err != nil {
		return nil, nil, nil, closed(err, v.files)
	}
	return v.meta, v.tensors, v.files, nil
}

// closed closes files after a fault; what goes wrong there adds nothing to the first error but its text.
func closed(err error, s *shards) error {
	if cerr := s.Close(); cerr != nil {
		return fmt.Errorf("%w (and closing: %w)", err, cerr)
	}
	return err
}

// newView starts the view of a decoded config; a multimodal one is reduced to its text part.
func newView(config map[string]any) *view {
	f := &faults{}
	v := &view{cfg: fields{where: configName, values: config, faults: f}, faults: f, meta: &gguf.Meta{}}
	v.readStorage()
	if text, ok := config["text_config"].(map[string]any); ok {
		v.cfg = fields{where: configName + ": text_config", values: text, faults: f}
		v.readStorage()
	}
	return v
}

// prefixes are what may stand before the tensor names: nothing, or the text model's place in a multimodal one.
func (v *view) prefixes() []string { return []string{"", "language_model.", "model.language_"} }

func (v *view) err(dir string) error {
	if len(v.faults.list) == 0 {
		return nil
	}
	return fmt.Errorf("hf: %s: %w", dir, v.faults)
}

// readObject reads a JSON object from a regular file of the folder.
func readObject(dir, name string, limitBytes int64) (map[string]any, error) {
	path, err := inside(dir, name)
	if err != nil {
		return nil, err
	}
	data, err := readRegular(path, limitBytes)
	if err != nil {
		return nil, err
	}
	m, err := strictjson.Object(data)
	if err != nil {
		return nil, fmt.Errorf("hf: %s: %w: %w", path, err, ErrConfig)
	}
	return m, nil
}

// readRegular reads a regular file of limited size; it never waits for the writer of a pipe.
func readRegular(path string, limitBytes int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("hf: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("hf: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("hf: %s: not a regular file (%s): %w", path, st.Mode().Type(), ErrConfig)
	}
	if st.Size() > limitBytes {
		return nil, fmt.Errorf("hf: %s: size %d bytes, want at most %d: %w", path, st.Size(), limitBytes, ErrConfig)
	}
	data, err := io.ReadAll(io.LimitReader(f, limitBytes+1))
	if err != nil {
		return nil, fmt.Errorf("hf: %s: %w", filepath.Base(path), err)
	}
	return data, nil
}
