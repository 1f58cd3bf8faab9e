package remote

import (
	"context"
	"errors"
	"strings"
	"testing"

	"terrace/kvmanager/values"
)

// TestOwnContext: an operation that ended with another's context is done again, one that ended with its own is not.
func TestOwnContext(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("connection reset")
	for _, c := range []struct {
		ctx   context.Context
		errs  []error // of each try
		tries int
		want  error
	}{
		{t.Context(), []error{nil}, 1, nil},
		{t.Context(), []error{context.Canceled, context.DeadlineExceeded, nil}, 3, nil},
		{t.Context(), []error{context.Canceled, broken}, 2, broken},
		{t.Context(), []error{context.Canceled, context.Canceled, context.Canceled, context.Canceled}, 4, context.Canceled},
		{gone, []error{context.Canceled}, 1, context.Canceled},
	} {
		tries := 0
		err := own(c.ctx, func() error { tries++; return c.errs[tries-1] })
		if tries != c.tries || !errors.Is(err, c.want) {
			t.Errorf("%v: %d tries, %v; want %d, %v", c.errs, tries, err, c.tries, c.want)
		}
	}
}

// TestUnregistered: a kind without a client is refused by name.
func TestUnregistered(t *testing.T) {
	if _, err := values.Open(t.Context(), "ftp", "host:21", values.Access{}); !errors.Is(err, values.ErrPlace) || !strings.Contains(err.Error(), "tier ftp=") {
		t.Errorf("%v", err)
	}
}
