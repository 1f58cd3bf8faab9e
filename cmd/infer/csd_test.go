package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// TestCSDServeRefuses: what the command line cannot mean ends with code 2 and one line.
func TestCSDServeRefuses(t *testing.T) {
	dir := t.TempDir()
	base := []string{"csd", "serve", "--dir", filepath.Join(dir, "d"), "--socket", filepath.Join(dir, "s")}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"csd"}, exitUsage, "serve, replay or stats"},
		{[]string{"csd", "serve", "--dir", dir}, exitUsage, "--socket"},
		{append(base[:6:6], "--capacity", "lots"), exitUsage, "--capacity"},
		{append(base[:6:6], "--capacity", "7B"), exitUsage, "capacity of 7 bytes"},
		{append(base[:6:6], "--capacity", "0"), exitUsage, "capacity of 0 bytes"},
		{append(base[:6:6], "--profile", "abacus"), exitUsage, "smartssd"},
		{append(base[:6:6], "--profile", filepath.Join(dir, "no.toml")), exitUsage, "no.toml"},
		{append(base[:6:6], "--clock", "sun"), exitUsage, "real or virtual"},
		{append(base[:6:6], "--keys", "tape"), exitUsage, "ddr or nand"},
		{append(base[:6:6], "--fault", "explode"), exitUsage, "stall"},
	} {
		var out, errs bytes.Buffer
		if code := run(tc.args, strings.NewReader(""), &out, &errs); code != tc.code || !strings.Contains(errs.String(), tc.want) || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%v: code %d, want %d: %q, want %q in one line", tc.args, code, tc.code, errs.String(), tc.want)
		}
	}
}
