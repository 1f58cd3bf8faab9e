package offload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
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
	if err := renameio.WriteFile(path, append(b, '\n'), 0o600); err != nil {
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
	if p.Version != profileVersion || !(p.Host.Copy > 0) {
		return p, fmt.Errorf("offload: profile %s: version %d, want %d, with rates: %w", path, p.Version, profileVersion, ErrShape)
	}
	return p, nil
}

// Directory gives the rates of a directory's device; ok is false where it was not measured.
func (p Profile) Directory(dir string) (StorageRates, bool) {
	for _, s := range p.Storage {
		if filepath.Clean(s.Dir) == filepath.Clean(dir) {
			return s, true
		}
	}
	return StorageRates{}, false
}

// Throughputs are the four of algorithms.md 1.7, in bytes a second.
type Throughputs struct{ FC, FS, BC, BS float64 }

// Throughputs of a plain SSD beside this host, keys scored in the given type ("f16", "int8", "int4"). A plain SSD does not
// score: with a sketch of the cold keys in memory the host does, at its own rate; without one (sketch false) keys are read
// from storage first, which gives at most twice B_s. ok is false where a figure is missing.
func (p Profile) Throughputs(dir, score string, sketch bool) (t Throughputs, ok bool) {
	s, ok := p.Directory(dir)
	t = Throughputs{FC: p.Host.Scan[score], FS: p.Host.Scan[score], BC: p.Host.Copy, BS: s.StreamRead}
	if !sketch {
		t.FS = min(t.FC, 2*t.BS)
	}
	return t, ok && t.FC > 0 && t.FS > 0 && t.BC > 0 && t.BS > 0
}
