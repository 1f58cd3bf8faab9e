package main

import (
	"strings"
	"testing"

	"terrace/policy"
)

func TestDropAdvice(t *testing.T) {
	for _, c := range []struct {
		spec                string
		prompt, later, held int
		freed               int64
		want                string
	}{
		{"full", 40, 8, 48, 0, ""},
		{"snapkv:budget=50%", 40, 8, 28, 1 << 19, "kept the newest 20 and chose none by score"},
		{"snapkv:budget=50%", 128, 8, 72, -1, "of a prompt of 128 tokens it kept the newest 64 and"},
		{"snapkv:budget=50%", 130, 8, 73, -1, ""}, // one of 65 was chosen
		{"snapkv:budget=50%,window_size=4", 40, 8, 28, 1<<20 - 1, "dropped 20 of 48 tokens, which frees about 1023 KiB"},
		{"snapkv:budget=50%,window_size=4", 40, 8, 28, 1 << 20, ""},
		{"snapkv:budget=50%,window_size=4", 40, 8, 28, -1, ""},
		{"knorm", 31, 0, 16, 1 << 10, "dropped 15 of 31 tokens"},
		{"knorm", 255, 1, 128, 1 << 10, ""}, // long enough
		{"knorm", 31, 0, 0, 1 << 10, ""},    // nothing known
		{"decoding:press=snapkv,target_size=16", 40, 100, 40, 2 << 20, ""},
	} {
		spec, err := policy.Parse(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		got := dropAdvice(spec, c.prompt, c.later, c.held, c.freed)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, %d and %d read, %d held, %d freed: %q, want %q", c.spec, c.prompt, c.later, c.held, c.freed, got, c.want)
		}
	}
}
