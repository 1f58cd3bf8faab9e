package stream

import (
	"errors"
	"fmt"

	"terrace/weights/gguf"
)

var (
	// ErrNotFinite is returned for weights that hold NaN or infinity.
	ErrNotFinite = gguf.ErrNotFinite
	// ErrBudget is returned for a budget that not even one step fits; the message names the least.
	ErrBudget = errors.New("the weights do not fit the memory given")
	// ErrRead is returned where the model's file cannot be read, after it was read a second time.
	ErrRead = errors.New("the model file cannot be read")
	// ErrStalled is returned where reads do not end. A later step goes on, once they do.
	ErrStalled = fmt.Errorf("the disk stalls: %w", ErrRead)
	// ErrBias is returned for a Bias that means nothing, or nothing for this model.
	ErrBias = errors.New("bad expert bias")
	// ErrChoices is returned for a file that holds no recorded choices.
	ErrChoices = errors.New("no recorded choices of experts")
	// ErrClosed is returned once the store is closed.
	ErrClosed = errors.New("the model is closed")
)
