package policy

import "testing"

// TestCanonical: spellings of one policy have one text, others another, and every policy's own reads back to itself.
func TestCanonical(t *testing.T) {
	canonical := func(spec string) string {
		t.Helper()
		s, err := Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		return s.Canonical()
	}
	for _, same := range [][]string{
		{"snapkv", "snap-kv:window=64,kernel=5", "SnapKVPress:budget=0.5", "snapkv:kernel_size=5,budget=50%"},
		{"snapkv:budget=1k,window=32", "snapkv:window_size=32,budget=1024"},
		{"adakv:snapkv", "adakv", "adakv:alpha_safeguard=20%,press=snapkv"},
		{"adakv:knorm,budget=25%", "adakv:press=knorm,budget=0.25"},
		{"snapkv:budget=64MiB", "snapkv:budget=65536KiB"},
		{"full+sliminfer", "full+sliminfer:preset=paper"},
	} {
		for _, spec := range same[1:] {
			if a, b := canonical(same[0]), canonical(spec); a != b {
				t.Errorf("%s is %s, %s is %s", same[0], a, spec, b)
			}
		}
	}
	seen := map[string]string{}
	for _, spec := range []string{"snapkv", "snapkv:budget=100%", "snapkv:budget=2", "snapkv:ratio=0.5", "snapkv:budget=0.4", "pyramidkv", "adakv", "adakv:knorm", "chunkkv:adakv/knorm", "quest", "quest:budget=100%"} {
		c := canonical(spec)
		if other, ok := seen[c]; ok {
			t.Errorf("%s and %s are both %s", spec, other, c)
		}
		seen[c] = spec
	}
	for _, info := range Infos() {
		c := canonical(info.Spec())
		if again := canonical(c); again != c {
			t.Errorf("%s is %s, read back %s", info.Spec(), c, again)
		}
	}
}
