//go:build lean

package share

import (
	"context"
	"fmt"

	"terrace/eval"
	"terrace/eval/run"
)

// A lean build has no NATS client: sharing a run is refused by name.

// Keep returns ErrServer.
func Keep(context.Context, Options, *run.Folder, eval.Suite, eval.Runner, bool, func(run.Progress)) (*run.Results, error) {
	return nil, errLean
}

// Join returns ErrServer.
func Join(context.Context, Options, run.Options, eval.Suite, eval.Runner) (int, error) {
	return 0, errLean
}

var errLean = fmt.Errorf("share: this binary was built with -tags lean, which leaves the NATS client out: %w", ErrServer)
