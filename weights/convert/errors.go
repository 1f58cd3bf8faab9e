package convert

import "errors"

var (
	// ErrType is returned for an element type that cannot be written.
	ErrType = errors.New("cannot write this element type")
	// ErrRange is returned where a weight does not fit the element type that is written.
	ErrRange = errors.New("weight is out of range of the element type")
	// ErrSource is returned where the tokenizer of the source cannot be read.
	ErrSource = errors.New("cannot read the source")
	// ErrImportance is returned for an importance matrix that is not this model's.
	ErrImportance = errors.New("importance matrix of another model")
	// ErrSpec is returned for a shape of a random model that contradicts itself.
	ErrSpec = errors.New("bad shape of a random model")
	// ErrWiden is returned for heads that a model cannot be widened to.
	ErrWiden = errors.New("cannot be widened")
)
