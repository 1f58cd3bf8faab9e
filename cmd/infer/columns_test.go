package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// A table on a terminal keeps to its width, and no word of it is lost; elsewhere a row is a line.
func TestTableFits(t *testing.T) {
	words := strings.TrimSpace(strings.Repeat("keeps tokens – éa ", 12))
	write := func(width int) string {
		var out bytes.Buffer
		a := newApp(context.Background(), nil, &out, nil)
		w := a.newTable()
		w.width = width
		fmt.Fprintf(w, "NAME\tDOES\nsnapkv\t%s\nlong\t%s\n", words, strings.Repeat("x", 130))
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if plain := write(0); strings.Count(plain, "\n") != 3 {
		t.Errorf("without a terminal:\n%s", plain)
	}
	for _, width := range []int{20, 40, 80} {
		got := write(width)
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("width %d: a line of %d: %q", width, n, line)
			}
		}
		if !strings.Contains(strings.Join(strings.Fields(got), " "), words) || strings.Count(got, "x") != 130 {
			t.Errorf("width %d: words are lost or broken:\n%s", width, got)
		}
	}
	if got := write(40); !strings.Contains(got, "\n        ") {
		t.Errorf("what goes on does not begin below its column:\n%s", got)
	}
}

// A bar says what is done of how much in one unit; what was there when it began is in no rate.
func TestBarDescription(t *testing.T) {
	start := time.Unix(1000, 0)
	b := &bar{label: "download " + strings.Repeat("hf:org/repository", 5)}
	b.rate.add(start, 50<<20)
	if got := b.describe(50<<20, 100<<20, true, 80); !strings.HasSuffix(got, " 50MiB/100MiB") || utf8.RuneCountInString(got) > 80-barRest {
		t.Errorf("at the beginning: %q", got)
	}
	for i := 1; i <= 400; i++ { // ten a second
		b.rate.add(start.Add(time.Duration(i)*100*time.Millisecond), 50<<20+int64(i)*(100<<10))
	}
	if got := b.describe(50<<20+400*(100<<10), 100<<20, true, 80); !strings.HasSuffix(got, " 89.1MiB/100MiB 1000KiB/s 11s") {
		t.Errorf("later: %q", got)
	}
	if len(b.rate.at) > 120 {
		t.Errorf("%d moments are kept", len(b.rate.at))
	}
	count := &bar{label: "reading the prompt"}
	count.rate.add(start, 0)
	count.rate.add(start.Add(2*time.Second), 1024)
	if got := count.describe(1024, 8192, false, 80); got != "reading the prompt 1024/8192 14s" {
		t.Errorf("counts: %q", got)
	}
}
