// Package tier says which memories hold an engine's KV: what --tier names.
package tier

import (
	"errors"
	"fmt"

	"terrace/internal/tierspec"
)

// ErrOption marks a tier, or a set of them, that means nothing; it is engine.ErrOption.
var ErrOption = errors.New("bad option")

// The tiers that hold KV of running texts, fastest first.
const (
	Device = tierspec.Device
	Host   = tierspec.Host
	SSD    = tierspec.SSD
	CSD    = tierspec.CSD
)

// Tier is one tier of the KV cache (tierspec.Parse).
type Tier = tierspec.Spec

// HostBytes is the host memory that tiers give to KV; 0 = they name none.
func HostBytes(tiers []Tier) int64 {
	for _, t := range tiers {
		if t.Kind == Host {
			return t.CapacityBytes
		}
	}
	return 0
}

// Check refuses sets of tiers that mean nothing.
func Check(tiers []Tier) error {
	if err := tierspec.Check(tiers, tierspec.Running); err != nil {
		return fmt.Errorf("engine: %w: %w", err, ErrOption)
	}
	seen := map[tierspec.Kind]bool{}
	for _, t := range tiers {
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
