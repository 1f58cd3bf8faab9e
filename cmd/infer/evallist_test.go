package main

import (
	"strings"
	"testing"
)

// The list has every suite, its tasks, and where its data come from.
func TestEvalList(t *testing.T) {
	code, out, errs := runCommand("eval", "--list")
	if code != exitDone || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, s := range suites {
		if s.from == "" || !strings.Contains(out, s.name+": "+s.about+"\n  data: "+s.from+"\n") {
			t.Errorf("%s is not in the list, or its data come from nowhere", s.name)
		}
	}
	for _, task := range []string{"qasper", "niah_multikey_1", "openbookqa"} {
		if !strings.Contains(out, task) {
			t.Errorf("no task %s: %s", task, out)
		}
	}
}
