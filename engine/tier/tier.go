// Package tier says which memories hold an engine's KV: what --tier names.
package tier

import (
	"errors"
	"fmt"
	"strings"

	"terrace/internal/nearest"
	"terrace/internal/units"
)

// ErrOption marks a tier, or a set of them, that means nothing; it is engine.ErrOption.
var ErrOption = errors.New("bad option")

// Kind names a kind of memory that holds KV.
type Kind string

// The tiers, fastest first.
const (
	Device Kind = "device" // memory of a backend's own device, which keeps copies of what lies below
	Host   Kind = "host"   // DRAM, up to a number of bytes
	SSD    Kind = "ssd"    // a file in a directory
	CSD    Kind = "csd"    // a computational storage drive behind a Unix socket
)

// Tier is one tier of the KV cache.
type Tier struct {
	Kind  Kind
	Path  string // directory of an SSD, socket of a drive
	Bytes int64  // capacity; 0 = a drive's own

	GapBytes int // of an SSD: how much it reads in the time of one more operation, as measured (offload.StorageRates.GapBytes); 0 = not measured
}

// Parse reads device=SIZE, host=SIZE, ssd=DIR,SIZE or csd=unix:SOCKET.
func Parse(spec string) (Tier, error) {
	kind, rest, ok := strings.Cut(spec, "=")
	t := Tier{Kind: Kind(kind)}
	size := rest
	switch {
	case !ok || rest == "":
		return t, fmt.Errorf("engine: tier %q: want device=SIZE, host=SIZE, ssd=DIR,SIZE or csd=unix:SOCKET: %w", spec, ErrOption)
	case t.Kind == SSD:
		at := strings.LastIndexByte(rest, ',')
		if at <= 0 {
			return t, fmt.Errorf("engine: tier %q: want ssd=DIR,SIZE: %w", spec, ErrOption)
		}
		t.Path, size = rest[:at], rest[at+1:]
	case t.Kind == CSD:
		if t.Path, ok = strings.CutPrefix(rest, "unix:"); !ok || t.Path == "" {
			return t, fmt.Errorf("engine: tier %q: want csd=unix:SOCKET: %w", spec, ErrOption)
		}
		return t, nil
	case t.Kind != Host && t.Kind != Device:
		return t, fmt.Errorf("engine: tier %q: kind %q is not known%s, want device, host, ssd or csd: %w", spec, kind, strings.TrimSuffix(nearest.Hint(string(kind), []string{"device", "host", "ssd", "csd"}), "?"), ErrOption)
	}
	n, err := units.ParseBytes(size)
	if err != nil || n <= 0 {
		return t, fmt.Errorf("engine: tier %q: size %q: want a number of bytes above 0, like 256MiB: %w", spec, size, ErrOption)
	}
	t.Bytes = n
	return t, nil
}

// Check refuses sets of tiers that mean nothing.
func Check(tiers []Tier) error {
	seen := map[Kind]bool{}
	for _, t := range tiers {
		if seen[t.Kind] && t.Kind != CSD { // drives share the heads
			return fmt.Errorf("engine: tier %s is given twice: %w", t.Kind, ErrOption)
		}
		seen[t.Kind] = true
	}
	if seen[SSD] && !seen[Host] {
		return fmt.Errorf("engine: a lower tier needs host=SIZE beside it: what fits there stays: %w", ErrOption)
	}
	if seen[SSD] && seen[CSD] {
		return fmt.Errorf("engine: one tier below host at a time, not both ssd and csd: %w", ErrOption)
	}
	return nil
}
