package terrace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"terrace/hub"
	"terrace/model"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/vocab"
)

// Adapter is a LoRA adapter and what its change is multiplied by: 1 = as it was trained, 0 = without effect.
type Adapter = weights.Adapter

// File is a model's file or folder, open: what Open makes a Model of, for programs that want its parts alone. Close it.
// Its methods are for one goroutine at a time.
type File struct {
	name    string
	weights *weights.Model
	model   *model.Model // from Model
	adapted bool         // adapters are merged into the weights
	outline *hub.Outline // of a model that is not here; nil = it is

	tok      *tokenizer.Tokenizer // from Tokenizer
	template string               // of tok; "" = the model's own
}

// OpenFile resolves a name as Open does, fetching the model where it is not here yet, and maps its file. Of the options Adapters
// and Hub count. Errors of the model's and the adapters' files are ErrModel, those of the name and of fetching are hub's,
// ErrNoModel among them.
func OpenFile(ctx context.Context, name string, o Options) (*File, error) {
	h, err := hub.New(o.Hub)
	if err != nil {
		return nil, err
	}
	got, err := h.Resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	f := &File{name: name}
	if f.weights, err = weights.Open(got.Path); err != nil {
		return nil, marked{err, ErrModel}
	}
	if f.adapted = len(o.Adapters) > 0; f.adapted {
		if err := f.weights.Adapt(o.Adapters); err != nil {
			return nil, errors.Join(marked{err, ErrModel}, f.Close())
		}
	}
	return f, nil
}

// OutlineFile opens a model as OpenFile does, but fetches no more than its files' headers where it is not here yet (whole then says so):
// its shape is known, its weights read as zeros. Where no source of the name gives parts of files, it is fetched whole.
func OutlineFile(ctx context.Context, name string, o Options) (f *File, whole bool, err error) {
	h, err := hub.New(o.Hub)
	if err != nil {
		return nil, false, err
	}
	const first, most = 4 << 20, 256 << 20
	for head := int64(first); ; head *= 4 {
		got, err := h.Outline(ctx, name, head)
		if errors.Is(err, errors.ErrUnsupported) {
			o.notice("%s comes from a package, whose headers cannot be read alone: it is fetched", name)
			f, err := OpenFile(ctx, name, o)
			return f, true, err
		}
		if err != nil {
			return nil, false, err
		}
		f := &File{name: name, outline: got}
		f.weights, err = weights.Open(got.Path)
		whole := err == nil && f.headed(got.HeadBytes)
		if whole {
			if _, err = f.Model(); err == nil {
				return f, got.HeadBytes == 0, nil
			}
		}
		if err == nil {
			err = fmt.Errorf("terrace: headers of %s are longer than %d bytes: %w", name, head, weights.ErrFormat)
		}
		// Where not all of a header is there it cannot be told from a damaged one: more of it is asked for.
		if cerr := f.Close(); whole || got.HeadBytes == 0 || head >= most || !errors.Is(err, weights.ErrFormat) {
			return nil, false, marked{errors.Join(err, cerr), ErrModel}
		}
	}
}

// headed reports whether the headers end within what was fetched of each file: no tensor begins before an end that was not read.
func (f *File) headed(headBytes int64) bool {
	if headBytes == 0 {
		return true
	}
	first := map[string]int64{}
	for _, t := range f.weights.Tensors() {
		for _, p := range t.Parts() {
			if path, at, ok := p.Where(0, 1); ok {
				if old, seen := first[path]; !seen || at < old {
					first[path] = at
				}
			}
		}
	}
	for _, at := range first {
		if at > headBytes {
			return false
		}
	}
	return true
}

// Model is what the file's metadata and tensors describe, the same at every call; it lives as long as the File. Errors are ErrModel.
func (f *File) Model() (*model.Model, error) {
	if f.model != nil {
		return f.model, nil
	}
	m, err := model.Open(f.weights)
	if err != nil {
		return nil, marked{err, ErrModel}
	}
	f.model = m
	return m, nil
}

// Tokenizer is the model's tokenizer with a chat template (Jinja), "" = the model's own; with the one it was last called with, it is
// the same. Errors are ErrModel, as they are where Model was called before and its vocabulary has fewer rows than the tokenizer has
// tokens; a template that is blank or not UTF-8 is ErrOption.
func (f *File) Tokenizer(template string) (*tokenizer.Tokenizer, error) {
	if f.tok == nil || f.template != template {
		tok, err := f.newTokenizer(template)
		if err != nil {
			return nil, err
		}
		f.tok, f.template = tok, template
	}
	if f.model != nil && f.tok.Size() > f.model.Vocab {
		err := fmt.Errorf("%s: the tokenizer has %d tokens, the model's vocabulary has %d rows", f.Path(), f.tok.Size(), f.model.Vocab)
		return nil, marked{marked{err, weights.ErrFormat}, ErrModel}
	}
	return f.tok, nil
}

func (f *File) newTokenizer(template string) (*tokenizer.Tokenizer, error) {
	dir := ""
	if f.weights.Format() == "safetensors" {
		dir = f.Path()
	}
	v, err := vocab.FromModel(f.weights.Meta(), dir)
	if err != nil {
		return nil, marked{err, ErrModel}
	}
	if template != "" {
		if strings.TrimSpace(template) == "" || !utf8.ValidString(template) {
			return nil, fmt.Errorf("terrace: a chat template of %d bytes, want text in UTF-8 that is not blank: %w", len(template), ErrOption)
		}
		v.ChatTemplate = template
	}
	tok, err := tokenizer.New(v)
	if err != nil {
		return nil, marked{err, ErrModel}
	}
	return tok, nil
}

// Name is what the file was opened by.
func (f *File) Name() string { return f.name }

// Path is the local file (of a model in parts the first), or the folder.
func (f *File) Path() string { return f.weights.Path() }

// Weights are the file's metadata and tensors, the File's to close.
func (f *File) Weights() *weights.Model { return f.weights }

// Close unmaps the file; what was made of it must not be used any more.
func (f *File) Close() error {
	var err error
	if f.weights != nil {
		err = f.weights.Close()
	}
	if f.outline != nil {
		err = errors.Join(err, f.outline.Close())
	}
	return err
}
