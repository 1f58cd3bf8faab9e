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
	var above *Tier
	for _, t := range Lower(tiers) {
		switch {
		case t.Kind == SSD && HostBytes(tiers) == 0:
			return fmt.Errorf("engine: a lower tier needs host=SIZE beside it: what fits there stays: %w", ErrOption)
		case t.Kind == SSD && above != nil && above.Kind == CSD:
			return fmt.Errorf("engine: tier %s below drive %s: a drive holds all keys: name it last: %w", t.Name(), above.Name(), ErrOption)
		case t.Kind == SSD && above != nil && above.CapacityBytes >= t.CapacityBytes:
			return fmt.Errorf("engine: tier %s of %d bytes below %s of %d: the lower one holds all KV, the upper one copies of some: name the larger last: %w",
				t.Name(), t.CapacityBytes, above.Name(), above.CapacityBytes, ErrOption)
		}
		above = &t
	}
	return nil
}

// LevelName is the name in accounts of a tier below host memory that so many lie above: "ssd", "ssd2" below another, "csd".
func LevelName(kind tierspec.Kind, above int) string {
	if kind == CSD || above == 0 {
		return string(kind)
	}
	return fmt.Sprint(kind, above+1)
}

// Lower are the tiers below host memory, fastest first.
func Lower(tiers []Tier) (list []Tier) {
	for _, t := range tiers {
		if t.Kind == SSD || t.Kind == CSD {
			list = append(list, t)
		}
	}
	return list
}
