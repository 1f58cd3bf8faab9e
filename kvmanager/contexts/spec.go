package contexts

import (
	"fmt"

	"terrace/internal/tierspec"
)

// Spec is one tier of a store (tierspec.Parse): host, ssd, valkey or s3.
type Spec = tierspec.Spec

// CheckSpecs refuses tiers that keep no prompts, and those named twice. Errors wrap tierspec.ErrSpec.
func CheckSpecs(specs []Spec) error {
	if err := tierspec.Check(specs, tierspec.Stored); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}
