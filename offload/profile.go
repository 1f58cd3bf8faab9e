package offload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"terrace/internal/replace"
)

// Profile is what `infer profile` measured on this host; HillInfer's balance is computed from it.
type Profile struct {
	Version int            `json:"version"`
	Source  string         `json:"source"` // "measured"
	Time    string         `json:"time"`   // RFC 3339
	CPU     string         `json:"cpu"`
	Kernels string         `json:"kernels"` // the path in use
	Host    HostRates      `json:"host"`
	Storage []StorageRates `json:"storage"`
}

// profileVersion is the format of the file.
const profileVersion = 1

// ProfileFile is where a profile lies in a home folder.
func ProfileFile(home string) string { return filepath.Join(home, "profile.json") }

// SaveProfile writes a profile in one step.
func SaveProfile(path string, p Profile) error {
	p.Version, p.Source = profileVersion, "measured"
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("offload: profile: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("offload: profile: %w", err)
	}
	if err := replace.WriteFile(path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("offload: profile: %w", err)
	}
	return nil
}

// LoadProfile reads a profile. ErrMissing: nothing was measured yet; ErrShape: the file is not one of this version.
func LoadProfile(path string) (p Profile, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("offload: %s: this host was not measured yet (infer profile): %w", path, ErrMissing)
	}
	if err != nil {
		return p, fmt.Errorf("offload: profile: %w", err)
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("offload: profile %s: %w: %w", path, err, ErrShape)
	}
	if err := CheckRates(b); err != nil {
		return p, fmt.Errorf("offload: profile %s: %w: %w", path, err, ErrShape)
	}
	if p.Version != profileVersion || !(p.Host.Copy > 0) {
		return p, fmt.Errorf("offload: profile %s: version %d, want %d, with rates: %w", path, p.Version, profileVersion, ErrShape)
	}
	return p, nil
}
