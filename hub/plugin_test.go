package hub

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlugins pulls each plugin of the catalogue from a pip that has a wheel of the right name with other bytes, from one
// that has no such package, and without pip: the package and the file in it are the ones pinned, wrong bytes are refused and
// not kept, and each error says what was wrong or what to do.
func TestPlugins(t *testing.T) {
	members := map[string][2]string{
		"plugin:xla-cpu":  {"fastatomstruct-xla-cpu-2026.6.23.whl", "fastatomstruct_xla_cpu/libpjrt_cpu.so"},
		"plugin:xla-cuda": {"jax-cuda13-pjrt-0.11.2.whl", "jax_plugins/xla_cuda13/xla_cuda_plugin.so"},
	}
	found := 0
	for _, m := range Catalogue() {
		if !m.Plugin {
			continue
		}
		found++
		want, ok := members[m.Name]
		if !ok {
			t.Errorf("plugin %s is not tested", m.Name)
			continue
		}
		dir := t.TempDir()
		makeWheel(t, filepath.Join(dir, want[0]), map[string][]byte{want[1]: blob(30, 1000), "other.so": blob(31, 1000)})
		h, notices := newTestHub(t, Options{Pip: fakePip(t, dir, "")})
		if _, err := h.Resolve(t.Context(), m.Name); !errors.Is(err, ErrChecksum) || !strings.Contains(err.Error(), sumOf(blob(30, 1000))) {
			t.Errorf("%s with other bytes: %v, want their checksum refused", m.Name, err)
		}
		if m.Notice != "" && !strings.Contains(strings.Join(*notices, "\n"), m.Notice) {
			t.Errorf("%s: what the plugin needs was not said: %q", m.Name, *notices)
		}
		if _, ok := h.cached(m.Name); ok {
			t.Errorf("%s: wrong bytes are in the cache", m.Name)
		}
		h, _ = newTestHub(t, Options{Pip: fakePip(t, t.TempDir(), "")})
		if _, err := h.Resolve(t.Context(), m.Name); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "pip") {
			t.Errorf("%s where the index has no such package: %v", m.Name, err)
		}
		h, _ = newTestHub(t, Options{})
		if _, err := h.Resolve(t.Context(), m.Name); !errors.Is(err, ErrNoPip) || !strings.Contains(err.Error(), "install") {
			t.Errorf("%s without pip: %v, want what to install", m.Name, err)
		}
	}
	if found != len(members) {
		t.Errorf("%d plugins in the catalogue, want %d", found, len(members))
	}
}
