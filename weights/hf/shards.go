package hf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"terrace/weights/gguf"
	"terrace/weights/mapped"
	"terrace/weights/safetensors"
)

const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
	// maxIndexBytes bounds the index; that of the largest models has some ten MB.
	maxIndexBytes = 64 << 20
)

// shards are the safetensors files of a folder.
type shards struct {
	path    string // the file that says what there is: model.safetensors or the index
	files   []*safetensors.File
	tensors map[string]*gguf.Tensor
	origin  map[string]string // tensor of any dtype → file
	dtypes  map[string]string // of tensors that cannot be weights
	asked   map[string]bool   // tensors that were looked for by name
}

// openShards opens model.safetensors or, where there is none, all files that the index names; without an index those of one numbered set.
func openShards(dir string) (*shards, error) {
	s := &shards{tensors: map[string]*gguf.Tensor{}, origin: map[string]string{}, dtypes: map[string]string{}, asked: map[string]bool{}}
	if err := s.open(dir); err != nil {
		return nil, closed(err, s)
	}
	return s, nil
}

func (s *shards) open(dir string) error {
	s.path = filepath.Join(dir, singleName)
	if _, err := os.Lstat(s.path); err == nil {
		return s.openFile(dir, singleName)
	}
	s.path = filepath.Join(dir, indexName)
	if _, err := os.Lstat(s.path); errors.Is(err, fs.ErrNotExist) {
		return s.openNumbered(dir)
	}
	return s.openIndexed(dir)
}

// noWeights says what the folder has instead.
func noWeights(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("hf: %s: %w", dir, err)
	}
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".bin", ".pt", ".pth", ".pkl", ".ckpt":
			return fmt.Errorf("hf: %s: %w: only a pickle checkpoint (%s) is there, and pickle is never opened (it can run code); convert it to safetensors", dir, ErrNoWeights, e.Name())
		}
	}
	return fmt.Errorf("hf: %s: %w: neither %s nor %s is there", dir, ErrNoWeights, singleName, indexName)
}

// openFile opens one file and takes in its tensors.
func (s *shards) openFile(dir, name string) error {
	path, err := inside(dir, name)
	if err != nil {
		return err
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	for _, e := range f.Entries() {
		if before, dup := s.origin[e.Name]; dup {
			if !s.copies(f, e, before) {
				return fmt.Errorf("hf: %s: tensor %q is another than in %s: %w", path, e.Name, before, ErrConfig)
			}
			continue // which of them is read makes no difference
		}
		s.origin[e.Name], s.dtypes[e.Name] = path, e.DType
	}
	for _, t := range f.Tensors() {
		if s.tensors[t.Name] == nil {
			s.tensors[t.Name] = t
		}
		delete(s.dtypes, t.Name)
	}
	return nil
}

// copies reports whether a tensor of a file is, byte for byte, the one of the same name that an earlier file has.
func (s *shards) copies(f *safetensors.File, e safetensors.Entry, before string) bool {
	for _, other := range s.files {
		if other.Path() != before {
			continue
		}
		was, ok := other.Entry(e.Name)
		if !ok || was.DType != e.DType || !slices.Equal(was.Shape, e.Shape) {
			return false
		}
		same := false
		err := mapped.Guard(func() error {
			same = bytes.Equal(other.Bytes(e.Name), f.Bytes(e.Name))
			return nil
		})
		return err == nil && same
	}
	return false
}

// numbered is a file of a set: model-00001-of-00002.safetensors.
var numbered = regexp.MustCompile(`^(.+)-([0-9]{5})-of-([0-9]{5})\.safetensors$`)

// openNumbered opens the files of a folder without an index, where they are one whole set.
func (s *shards) openNumbered(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("hf: %s: %w", dir, err)
	}
	var names []string
	set, total := "", 0
	for _, e := range entries {
		m := numbered.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		if this := m[1] + "-of-" + m[3]; set == "" {
			set, s.path = this, filepath.Join(dir, e.Name())
			total, _ = strconv.Atoi(m[3]) // five digits
		} else if this != set {
			return fmt.Errorf("hf: %s: %w: %s is not there, and files of two sets are: %s and %s", dir, ErrNoWeights, indexName, filepath.Base(s.path), e.Name())
		}
		names = append(names, e.Name())
	}
	if len(names) == 0 {
		return noWeights(dir)
	}
	for i := range total {
		if want := fmt.Sprintf("-%05d-of-", i+1); !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, want) }) {
			return fmt.Errorf("hf: %s: %w: %s is not there, and of %d numbered files number %d is missing", dir, ErrNoWeights, indexName, total, i+1)
		}
	}
	if len(names) != total {
		return fmt.Errorf("hf: %s: %w: %s is not there, and there are %d numbered files of %d", dir, ErrNoWeights, indexName, len(names), total)
	}
	for _, name := range names {
		if err := s.openFile(dir, name); err != nil {
			return err
		}
	}
	return nil
}

// openIndexed reads the index's weight_map (tensor → file), opens each file once and checks that it holds what the index
// says.
func (s *shards) openIndexed(dir string) error {
	top, err := readObject(dir, indexName, maxIndexBytes)
	if err != nil {
		return err
	}
	weightMap, ok := top["weight_map"].(map[string]any)
	if !ok || len(weightMap) == 0 {
		return fmt.Errorf("hf: %s: weight_map is missing or no object: %w", s.path, ErrConfig)
	}
	opened := map[string]bool{}
	for _, tensor := range slices.Sorted(maps.Keys(weightMap)) {
		name, ok := weightMap[tensor].(string)
		if !ok {
			return fmt.Errorf("hf: %s: weight_map: %q is no file name: %w", s.path, tensor, ErrConfig)
		}
		if !opened[name] {
			if err := s.openFile(dir, name); err != nil {
				return fmt.Errorf("hf: index %s: weight_map: shard %q: %w", s.path, name, err)
			}
			opened[name] = true
		}
		if !s.in(tensor, filepath.Join(dir, name)) {
			return fmt.Errorf("hf: index %s: weight_map: tensor %q is missing from shard %q: %w", s.path, tensor, name, ErrMissingTensor)
		}
	}
	return nil
}

// in reports whether an open file has a tensor.
func (s *shards) in(tensor, path string) bool {
	for _, f := range s.files {
		if f.Path() == path {
			_, ok := f.Entry(tensor)
			return ok
		}
	}
	return false
}

// inside returns the path of a file of the folder. The name must be local and end in .safetensors; a link must lead to
// somewhere inside the folder, or into the blobs of Hugging Face's cache (models--X/snapshots/R links to models--X/blobs).
func inside(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	if !filepath.IsLocal(name) || strings.ContainsRune(name, '\\') || !strings.HasSuffix(name, ".safetensors") && !strings.HasSuffix(name, ".json") {
		return "", fmt.Errorf("hf: %s: file name %q: want a name inside the folder that ends in .safetensors: %w", dir, name, ErrOutside)
	}
	realDir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("hf: %w", err)
	}
	realPath, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("hf: %s: %w", path, err)
	}
	if within(realDir, realPath) {
		return path, nil
	}
	if filepath.Base(filepath.Dir(realDir)) == "snapshots" && within(filepath.Join(realDir, "..", "..", "blobs"), realPath) {
		return path, nil
	}
	return "", fmt.Errorf("hf: %s: link leads to %s: %w", path, realPath, ErrOutside)
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

func (s *shards) tensor(name string) *gguf.Tensor {
	s.asked[name] = true
	return s.tensors[name]
}

// unreadBias returns the first bias under a prefix that nobody has looked for beside its weight, "" if there is none.
func (s *shards) unreadBias(prefix string) string {
	for _, name := range slices.Sorted(maps.Keys(s.tensors)) {
		if base, is := strings.CutSuffix(name, ".bias"); is && strings.HasPrefix(name, prefix) && !s.asked[name] && s.asked[base+".weight"] {
			return name
		}
	}
	return ""
}

// raw is the bytes of a tensor of any dtype; nil = there is none.
func (s *shards) raw(name string) []byte {
	for _, f := range s.files {
		if _, ok := f.Entry(name); ok {
			return f.Bytes(name)
		}
	}
	return nil
}

// fileOf names the file of a tensor.
func (s *shards) fileOf(tensor string) string { return s.origin[tensor] }

// stem returns the first prefix under which the checkpoint has a tensor, the first of all if under none.
func (s *shards) stem(name string, prefixes ...string) string {
	for _, p := range prefixes {
		if s.tensors[p+name] != nil {
			return p
		}
	}
	return prefixes[0]
}

// headPrefix returns the prefix of the head, which some checkpoints keep outside of the model's own.
func (s *shards) headPrefix(name string) string { return s.stem(name, "", "language_model.") }

// beyond returns a tensor of the first layer that the config does not have, "" if there is none. What the layer before does
// not have either is unused, not a layer.
func (s *shards) beyond(stem string, layers int) string {
	next, last := fmt.Sprintf("%s%d.", stem, layers), fmt.Sprintf("%s%d.", stem, layers-1)
	for name := range s.tensors {
		if part, ok := strings.CutPrefix(name, next); ok && s.tensors[last+part] != nil {
			return name
		}
	}
	return ""
}

// SizeBytes is the size of all files.
func (s *shards) SizeBytes() (n int64) {
	for _, f := range s.files {
		n += f.SizeBytes()
	}
	return n
}

// CheckUnchanged reports the first file that is no longer the one that was opened; errors wrap mapped.ErrChanged.
func (s *shards) CheckUnchanged() error {
	for _, f := range s.files {
		if err := f.CheckUnchanged(); err != nil {
			return err
		}
	}
	return nil
}

// Close unmaps all files.
func (s *shards) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// otherParts are the first words of tensors of a multimodal checkpoint that are no part of its text model.
var otherParts = regexp.MustCompile(`(^|\.)(vision_tower|vision_model|vision_embedder|visual|multi_modal_projector|embed_vision|audio_tower|embed_audio)\.`)

// Unread names the parts of the checkpoint that hold images or sound and are not read, sorted.
func (s *shards) Unread() []string {
	parts := map[string]bool{}
	for name := range s.origin {
		if m := otherParts.FindStringSubmatch(name); m != nil {
			parts[m[2]] = true
		}
	}
	return slices.Sorted(maps.Keys(parts))
}

// ReadThrough has the bytes of all tensors read at each use (gguf.Tensor.ReadThrough); what is presented of them reads so too.
func (s *shards) ReadThrough(read func(path string, p []byte, offset int64) error) {
	for _, f := range s.files {
		for _, t := range f.Tensors() {
			t.ReadThrough(read)
		}
	}
}
