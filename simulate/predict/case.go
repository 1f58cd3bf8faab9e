package predict

import (
	"fmt"
	"path/filepath"
	"slices"

	"terrace/bench"
	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/tierspec"
	"terrace/internal/vfs"
	"terrace/simulate"
)

// Case is a policy on its tiers.
type Case struct {
	Policy string   // in the form that policy.Parse reads; "" = the model's own
	Tiers  []string // in the form that tierspec.Parse reads, fastest first
}

// PolicyName is the policy, full where none is named.
func (c Case) PolicyName() string {
	if c.Policy == "" {
		return "full"
	}
	return c.Policy
}

// Check refuses a case that cannot be predicted: one without a tier below host memory, with one that is no SSD or drive, with several
// drives, or with SSDs on several devices. The error is engine.ErrOption.
func (c Case) Check() error {
	if len(c.Tiers) == 0 {
		return fmt.Errorf("predict: case %s has no tiers: %w", c.PolicyName(), engine.ErrOption)
	}
	dirs, _, err := c.lower()
	for i := 1; err == nil && i < len(dirs); i++ {
		if !vfs.SameDisk(dirs[0], dirs[i]) {
			err = fmt.Errorf("predict: ssd=%s and ssd=%s lie on two devices, and one is modelled: name folders of one file system: %w", dirs[0], dirs[i], engine.ErrOption)
		}
	}
	return err
}

// Lacks is the first of the case's tiers that a host knows nothing of, as "ssd=" or "csd="; empty where it knows all.
func (c Case) Lacks(host simulate.Host) string {
	for _, spec := range c.Tiers {
		t, err := tierspec.Parse(spec)
		if err == nil && (t.Kind == tier.CSD && host.Drive == nil || t.Kind == tier.SSD && host.Storage == nil) {
			return string(t.Kind) + "="
		}
	}
	return ""
}

// lower are the folders of the case's ssd tiers, fastest first, and the socket of its drive; empty = it has none.
func (c Case) lower() (dirs []string, socket string, err error) {
	for _, spec := range c.Tiers {
		t, err := tierspec.Parse(spec)
		if err != nil {
			return nil, "", fmt.Errorf("predict: %w", err)
		}
		switch {
		case t.XCache != 0:
			return nil, "", fmt.Errorf("predict: tier %s: what xcache projects again is not worked out: leave it out, or measure without --predict: %w", t.Kind, engine.ErrOption)
		case t.Kind == tier.SSD:
			dirs = append(dirs, t.Place)
		case t.Kind == tier.CSD && socket == "":
			socket = t.Place
		case t.Kind != tier.Host:
			return nil, "", fmt.Errorf("predict: tier %s: want host=SIZE, then ssd=DIR,SIZE, csd=unix:SOCKET or both, one drive at most: %w", t.Kind, engine.ErrOption)
		}
	}
	if dirs == nil && socket == "" {
		return nil, "", fmt.Errorf("predict: want a tier below host memory, as in host=SIZE ssd=DIR,SIZE: %w", engine.ErrOption)
	}
	return dirs, socket, nil
}

// calibrateShare is how much of a case's depth, of its host memory, and of each tier above another, the runs have from which rates are
// learnt.
const calibrateShare = 0.75

// smaller is a case at calibrateShare, with a folder of its own on an SSD: the folders that it makes.
func smaller(c Case, o bench.Options) (less Case, own bench.Options, made []string, err error) {
	less, own = Case{Policy: c.Policy, Tiers: slices.Clone(c.Tiers)}, o
	own.D, own.Repeats = int(calibrateShare*float64(o.D)), max(o.Repeats, 1)+1
	for i, spec := range c.Tiers {
		t, err := tierspec.Parse(spec)
		if err != nil {
			return less, own, nil, fmt.Errorf("predict: %w", err)
		}
		switch t.Kind {
		case tier.Host:
			t.CapacityBytes = int64(calibrateShare * float64(t.CapacityBytes))
			less.Tiers[i] = t.String()
		case tier.SSD:
			t.Place = filepath.Join(t.Place, "calibration")
			if i < len(c.Tiers)-1 { // it holds a part of the KV
				t.CapacityBytes = int64(calibrateShare * float64(t.CapacityBytes))
			}
			made = append(made, t.Place)
			less.Tiers[i] = t.String()
		}
	}
	return less, own, made, nil
}
