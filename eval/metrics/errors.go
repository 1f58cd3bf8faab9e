package metrics

import "errors"

var (
	// ErrTask is returned for a task that has no metric here; the message lists those that have.
	ErrTask = errors.New("unknown task")
	// ErrRow marks a row that the official code cannot score either (it would crash): answers that are missing, classes
	// that are missing, a retrieval answer without a paragraph number.
	ErrRow = errors.New("row cannot be scored")
)
