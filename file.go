package terrace

import (
	"context"

	"terrace/hub"
	"terrace/weights"
)

// File is a model's file or folder, open: what Open makes a Model of, for programs that want its parts alone. Close it.
type File struct {
	name    string
	weights *weights.Model
}

// OpenFile resolves a name as Open does, fetching the model where it is not here yet, and maps its file. Errors of the file are
// ErrModel, those of the name and of fetching are hub's, ErrNoModel among them.
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
	return f, nil
}

// Name is what the file was opened by.
func (f *File) Name() string { return f.name }

// Path is the local file (of a model in parts the first), or the folder.
func (f *File) Path() string { return f.weights.Path() }

// Weights are the file's metadata and tensors, the File's to close.
func (f *File) Weights() *weights.Model { return f.weights }

// Close unmaps the file; what was made of it must not be used any more.
func (f *File) Close() error { return f.weights.Close() }
