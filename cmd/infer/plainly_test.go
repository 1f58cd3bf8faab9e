package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"terrace/engine"
	"terrace/policy"
)

func TestPlainly(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("engine: 40 tokens, the context holds 10: %w; shorten the prompt", engine.ErrContext), "40 tokens, the context holds 10: does not fit the context; shorten the prompt"},
		{fmt.Errorf("engine: 3 of 4: %w; want 4", engine.ErrOption), "3 of 4; want 4"},
		{fmt.Errorf("engine: %w (a weight is broken)", engine.ErrNotFinite), "logits are not finite (a weight is broken)"},
		{usageErrorf("--policy x: %v", fmt.Errorf("policy: %q: %w", "x", policy.ErrUnknown)), `--policy x: "x"`},
		{fmt.Errorf("report: run: /a is not there: %w", errors.Join(errors.New("first"), engine.ErrOption)), "/a is not there: first; bad option"},
		{fmt.Errorf("engine: pages: %w", syscall.ENOMEM), "pages: cannot allocate memory"},
		{engine.ErrContext, engine.ErrContext.Error()},
		{errors.New("engine"), "engine"},
	} {
		if got := plainly(c.err); got != c.want {
			t.Errorf("%v\nplainly %q\nwant    %q", c.err, got, c.want)
		}
	}
	// --verbose keeps what the code calls it.
	if _, _, errs := runCommand("generate", "--policy", "nope", "hi"); strings.Contains(errs, ": policy: ") || strings.Contains(errs, policy.ErrUnknown.Error()) {
		t.Errorf("plain: %s", errs)
	}
	if _, _, errs := runCommand("generate", "--verbose", "--policy", "nope", "hi"); !strings.Contains(errs, ": policy: ") || !strings.Contains(errs, policy.ErrUnknown.Error()) {
		t.Errorf("--verbose: %s", errs)
	}
}
