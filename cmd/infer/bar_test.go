package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// Without a terminal progress is a line each time that lineEvery has passed, none before, and none with --quiet.
func TestProgressLines(t *testing.T) {
	defer func(d time.Duration) { lineEvery = d }(lineEvery)
	var out bytes.Buffer
	a := newApp(context.Background(), nil, nil, &out)
	b := a.newBar()
	b.count("rows", 1, 10)
	b.count("rows", 2, 10)
	if out.Len() > 0 {
		t.Errorf("a line before a minute has passed: %q", out.String())
	}
	lineEvery = 0
	b.count("rows", 3, 10)
	b.bytes("fetching", 3<<20, 0)
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "infer: rows: 3 of 10 after ") || !strings.Contains(got, "infer: fetching: 3MiB after ") {
		t.Errorf("%q", got)
	}
	out.Reset()
	a.quiet = true
	a.newBar().count("rows", 3, 10)
	if out.Len() > 0 {
		t.Errorf("with --quiet: %q", out.String())
	}
}
