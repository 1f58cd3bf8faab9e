// Package profiles reads the profiles of drives: built in by name, others from TOML files.
package profiles

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"terrace/csdshim/hardware"
)

//go:embed *.toml
var files embed.FS

// Names are the built-in profiles.
func Names() (names []string) {
	list, err := files.ReadDir(".")
	if err != nil {
		panic(err) // embedded
	}
	for _, f := range list {
		names = append(names, strings.TrimSuffix(f.Name(), ".toml"))
	}
	return names
}

// Load returns a built-in profile by its name, or reads a TOML file (a name that has a dot or a slash). Unknown and
// missing keys are errors that wrap hardware.ErrProfile.
func Load(name string) (hardware.Profile, error) {
	var text []byte
	var err error
	switch {
	case strings.ContainsAny(name, "./"+string(filepath.Separator)):
		text, err = os.ReadFile(name)
	case slices.Contains(Names(), name):
		text, err = files.ReadFile(name + ".toml")
	default:
		err = fmt.Errorf("there is none; built in are %s, others are paths of TOML files", strings.Join(Names(), ", "))
	}
	if err != nil {
		return hardware.Profile{}, fmt.Errorf("csdshim: profile %q: %w: %w", name, err, hardware.ErrProfile)
	}
	p, err := parse(text)
	if err != nil {
		return p, fmt.Errorf("csdshim: profile %q: %w: %w", name, err, hardware.ErrProfile)
	}
	return p, nil
}

func parse(text []byte) (p hardware.Profile, err error) {
	d := toml.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		if strict := (*toml.StrictMissingError)(nil); errors.As(err, &strict) && len(strict.Errors) > 0 {
			return p, fmt.Errorf("unknown key %q", strings.Join(strict.Errors[0].Key(), "."))
		}
		return p, errors.New(strings.SplitN(err.Error(), "\n", 2)[0])
	}
	var given map[string]any
	if err := toml.Unmarshal(text, &given); err != nil {
		return p, err
	}
	if missing := missingKeys(given); len(missing) > 0 {
		return p, fmt.Errorf("missing key %s", strings.Join(missing, ", "))
	}
	return p, p.Validate()
}

// missingKeys lists what a profile must say and does not: nothing has a default that could be taken for a measurement.
func missingKeys(given map[string]any) (missing []string) {
	for _, key := range []string{"name", "link.to_host_bytes_per_s", "link.to_drive_bytes_per_s", "link.latency_us",
		"nand.channels", "nand.dies", "nand.planes", "nand.page_bytes", "nand.block_pages", "nand.channel_bytes_per_s", "nand.read_us",
		"nand.program_us", "nand.erase_us", "nand.bus_bytes_per_s", "nand.spare_percent",
		"dram.bytes", "dram.bytes_per_s", "engine.scan_bytes_per_s", "engine.command_us"} {
		table, name, nested := strings.Cut(key, ".")
		where := given
		if nested {
			where, _ = given[table].(map[string]any)
		} else {
			name = table
		}
		if _, ok := where[name]; !ok {
			missing = append(missing, key)
		}
	}
	return missing
}
