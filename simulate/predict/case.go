package predict

import (
	"fmt"
	"path/filepath"
	"slices"

	"terrace/bench"
	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/tierspec"
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

// Check refuses a case that cannot be predicted: one without a tier below host memory, or with one that is no SSD or drive. The error is
// engine.ErrOption.
func (c Case) Check() error {
	if len(c.Tiers) == 0 {
		return fmt.Errorf("predict: case %s has no tiers: %w", c.PolicyName(), engine.ErrOption)
	}
	_, _, err := c.lower()
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

// lower is the directory of the case's ssd tier, or the socket of its first drive.
func (c Case) lower() (ssd, socket string, err error) {
	for _, spec := range c.Tiers {
		t, err := tierspec.Parse(spec)
		if err != nil {
			return "", "", fmt.Errorf("predict: %w", err)
		}
		switch {
		case t.XCache != 0:
			return "", "", fmt.Errorf("predict: tier %s: what xcache projects again is not worked out: leave it out, or measure without --predict: %w", t.Kind, engine.ErrOption)
		case t.Kind == tier.SSD && ssd == "" && socket == "":
			ssd = t.Place
		case t.Kind == tier.CSD && socket == "" && ssd == "":
			socket = t.Place
		case t.Kind != tier.Host:
			return "", "", fmt.Errorf("predict: tier %s: want host=SIZE ssd=DIR,SIZE, or one drive, csd=unix:SOCKET: %w", t.Kind, engine.ErrOption)
		}
	}
	if ssd == "" && socket == "" {
		return "", "", fmt.Errorf("predict: want a tier below host memory, as in host=SIZE ssd=DIR,SIZE: %w", engine.ErrOption)
	}
	return ssd, socket, nil
}

// calibrateShare is how much of a case's depth, and of its host memory, the runs have from which rates are learnt.
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
			made = append(made, t.Place)
			less.Tiers[i] = t.String()
		}
	}
	return less, own, made, nil
}
