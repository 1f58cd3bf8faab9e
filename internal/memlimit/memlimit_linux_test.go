package memlimit

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCgroupLimits: limits of both versions are found, those of groups above too, and what is used of them counts.
func TestCgroupLimits(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("a/b/memory.max", "1000\n")
	write("a/b/memory.current", "400\n")
	write("a/b/memory.stat", "anon 300\ninactive_file 50\n")
	write("a/memory.max", "max\n")
	write("memory.max", "5000\n")
	write("memory.current", "4900\n")
	write("memory/x/memory.limit_in_bytes", "700\n")
	write("memory/x/memory.usage_in_bytes", "600\n")
	write("memory/memory.limit_in_bytes", "9223372036854771712\n")
	for member, want := range map[string][]int64{"0::/a/b\n": {650, 100}, "3:cpu,memory:/x\n2:cpu:/y\n": {100}, "": nil, "nonsense\n": nil} {
		got := cgroupLimits(write("membership", member), root)
		if len(got) != len(want) {
			t.Fatalf("%q: %+v, want %v free", member, got, want)
		}
		for i, l := range got {
			if l.Free != want[i] || !l.Process {
				t.Errorf("%q: %+v, want %d free", member, l, want[i])
			}
		}
	}
}
