package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"terrace/internal/replace"
)

// FromKey is the key of a preset's model; the others are names of flags.
const FromKey = "from"

// Presets is a folder of presets.
type Presets struct {
	Dir  string
	Keys []string // the flags that a preset may set
}

// Preset is a model and the values of flags that it is run with.
type Preset struct {
	From   string
	Values map[string][]string // by flag
}

// Value is a flag's value as it is written: a text, or a list of them.
type Value struct {
	Key   string
	Value any // string or []string
}

var presetName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}(:[a-z0-9][a-z0-9._-]{0,63})?$`)

// File is where the preset of a name lies, "" for what cannot be one's name: NAME or NAME:TAG of small letters, digits, dots, dashes and _.
func (p Presets) File(name string) string {
	if !presetName.MatchString(name) {
		return ""
	}
	return filepath.Join(p.Dir, strings.ReplaceAll(name, ":", "@")+".yaml")
}

// Read reads the preset of a name; false where there is none. Errors say what is wrong with the file.
func (p Presets) Read(name string) (Preset, bool, error) {
	path := p.File(name)
	if path == "" {
		return Preset{}, false, nil
	}
	if _, err := os.Stat(path); err != nil {
		return Preset{}, false, nil
	}
	values, err := Read(path)
	if err != nil {
		return Preset{}, false, err
	}
	if len(values[FromKey]) != 1 || values[FromKey][0] == "" {
		return Preset{}, false, fmt.Errorf("preset %s: want one model under %q", path, FromKey)
	}
	from := values[FromKey][0]
	delete(values, FromKey)
	for key := range values {
		if !slices.Contains(p.Keys, key) {
			return Preset{}, false, fmt.Errorf("preset %s: %q is nothing that a preset sets", path, key)
		}
	}
	return Preset{from, values}, true, nil
}

// Names are the names of all presets, sorted.
func (p Presets) Names() (names []string) {
	files, _ := filepath.Glob(filepath.Join(p.Dir, "*.yaml"))
	for _, f := range files {
		names = append(names, strings.ReplaceAll(strings.TrimSuffix(filepath.Base(f), ".yaml"), "@", ":"))
	}
	slices.Sort(names)
	return names
}

// templateKey is the flag whose file a preset has a copy of beside it.
const templateKey = "chat-template"

// Write writes the preset of a name that File takes, over one that is there. template is the text of the chat template, which is copied beside
// it; nil where none of the values names one.
func (p Presets) Write(name, from string, values []Value, template []byte) error {
	path := p.File(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	own := templateOf(path)
	if template != nil {
		if err := replace.WriteFile(own, template, 0o644); err != nil {
			return err
		}
	}
	out := yaml.MapSlice{{Key: FromKey, Value: from}}
	for _, v := range values {
		if v.Key == templateKey && template != nil {
			v.Value = own
		}
		out = append(out, yaml.MapItem{Key: v.Key, Value: v.Value})
	}
	text, err := yaml.Marshal(out)
	if err != nil {
		return err
	}
	return replace.WriteFile(path, text, 0o644)
}

// Remove deletes the preset of a name, and its template; false where there is none.
func (p Presets) Remove(name string) (bool, error) {
	path := p.File(name)
	if path == "" {
		return false, nil
	}
	err := os.Remove(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		if gone := os.Remove(templateOf(path)); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = gone
		}
	}
	if err != nil {
		return false, fmt.Errorf("preset %s: %w", name, err)
	}
	return true, nil
}

// templateOf is where the template of a preset's file lies.
func templateOf(path string) string { return strings.TrimSuffix(path, ".yaml") + ".jinja" }
