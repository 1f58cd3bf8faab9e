package main

import (
	"runtime/debug"
	"testing"
)

// TestCommitOf: a binary says what it is a build of, without version control too.
func TestCommitOf(t *testing.T) {
	const hash, other = "0123456789abcdef0123456789abcdef01234567", "fedcba9876543210fedcba9876543210fedcba98"
	vcs := func(modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: hash}, {Key: "vcs.modified", Value: modified}}}
	}
	none, module := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}
	for name, c := range map[string]struct {
		bi               *debug.BuildInfo
		linked, archived string
		want             string
		exact            bool
	}{
		"stamped by go":         {vcs("false"), other, other, "0123456789ab", true},
		"with changes":          {vcs("true"), other, "", "0123456789ab with changes", false},
		"linked":                {none, other, "$Format:%H$\n", "fedcba987654", true},
		"linked, with changes":  {none, other + "+", "", "fedcba987654 with changes", false},
		"of an archive":         {none, "", hash + "\n", "0123456789ab from an archive", false},
		"linked without git":    {none, "+", "$Format:%H$\n", "unknown commit", false},
		"version of the module": {module, "", "$Format:%H$\n", "v1.2.3", true},
		"nothing":               {none, "", "$Format:%H$\n", "unknown commit", false},
	} {
		if from, exact := commitOf(c.bi, c.linked, c.archived); from != c.want || exact != c.exact {
			t.Errorf("%s: %q %v, want %q %v", name, from, exact, c.want, c.exact)
		}
	}
}
