package main

import (
	"slices"
	"testing"
)

// TestDefaultStore: a server keeps prompts in memory unless something else is said.
func TestDefaultStore(t *testing.T) {
	for free, want := range map[int64]int64{0: 64 << 20, 1 << 30: 64 << 20, 8 << 30: 512 << 20, 1 << 40: 4 << 30} {
		if got := defaultStore(free); got != want {
			t.Errorf("%d bytes free: %d, want %d", free, got, want)
		}
	}
	for _, c := range []struct {
		args []string
		want []string // nil = none, "" = the default
	}{
		{nil, []string{""}}, {[]string{"--store", "none"}, nil}, {[]string{"--tier", "host=1GiB"}, nil}, {[]string{"--placement", "none"}, nil},
		{[]string{"--store", "host=64MiB", "--store", "ssd=/x,1GiB"}, []string{"host=64MiB", "ssd=/x,1GiB"}},
		{[]string{"--tier", "host=1GiB", "--store", "host=64MiB"}, []string{"host=64MiB"}},
	} {
		f := &serveCommand{app: &app{}, load: loadFlags{serves: true}, traces: &traceFolder{}}
		cmd := newServeOf(f)
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		f.ownStore(cmd)
		if len(c.want) == 1 && c.want[0] == "" {
			if len(f.store.stores) != 1 || f.store.stores[0][:5] != "host=" {
				t.Errorf("%v: %v", c.args, f.store.stores)
			}
		} else if !slices.Equal(f.store.stores, c.want) {
			t.Errorf("%v: %v, want %v", c.args, f.store.stores, c.want)
		}
	}
}
