package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"terrace/hub"
	"terrace/internal/replace"
)

func init() { register(newCreate) }

// A preset is a YAML file in the home folder: a model's name ("from") and values of flags that it is run with. It counts as a
// model's name wherever one is taken. The command line and the environment come before it, the configuration file after it.

// fromKey is the key of the model; the others are names of flags.
const fromKey = "from"

// presetFlags are what a preset may set.
var presetFlags = []string{"system", "chat-template", "stop", "temperature", "top-k", "top-p", "min-p", "repeat-penalty", "repeat-last-n", "frequency-penalty", "presence-penalty", "typical-p", "top-n-sigma", "xtc-probability", "xtc-threshold", "dry-multiplier", "dry-base", "dry-allowed-length", "dry-penalty-last-n",
	"dry-sequence-breaker", "mirostat", "mirostat-ent", "mirostat-lr", "seed", "max-tokens", "ignore-eos",
	"context", "on-overflow", "kv-type", "policy", "lora", "speculate"}

var presetName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}(:[a-z0-9][a-z0-9._-]{0,63})?$`)

// presetFile is where the preset of a name lies, "" for what cannot be one's name.
func (l *library) presetFile(name string) string {
	if !presetName.MatchString(name) {
		return ""
	}
	return filepath.Join(l.home(), "presets", strings.ReplaceAll(name, ":", "@")+".yaml")
}

// preset reads the preset of a name; false where there is none, or a file, folder or model of that name.
func (l *library) preset(name string) (map[string][]string, bool, error) {
	path := l.presetFile(name)
	if path == "" || namesModel(name) {
		return nil, false, nil
	}
	if _, err := os.Stat(path); err != nil {
		return nil, false, nil
	}
	values, err := readConfig(path)
	if err != nil {
		return nil, false, dataErrorf("%w", err)
	}
	if len(values[fromKey]) != 1 || values[fromKey][0] == "" {
		return nil, false, dataErrorf("preset %s: want one model under %q", path, fromKey)
	}
	for key := range values {
		if key != fromKey && !slices.Contains(presetFlags, key) {
			return nil, false, dataErrorf("preset %s: %q is nothing that a preset sets", path, key)
		}
	}
	return values, true, nil
}

// presets are the names of all presets, sorted.
func (l *library) presets() (names []string) {
	files, _ := filepath.Glob(filepath.Join(l.home(), "presets", "*.yaml"))
	for _, f := range files {
		names = append(names, strings.ReplaceAll(strings.TrimSuffix(filepath.Base(f), ".yaml"), "@", ":"))
	}
	slices.Sort(names)
	return names
}

// usePreset gives the flags of a command the values of the preset that its model names, where neither the command line nor the
// environment has set them, and the model that it is made from.
func (l *library) usePreset(cmd *cobra.Command, name string) (model string, err error) {
	values, ok, err := l.preset(name)
	if !ok || err != nil {
		return name, err
	}
	path := l.presetFile(name)
	for key, value := range values {
		f := cmd.Flags().Lookup(key)
		if f == nil || f.Changed && (!filled(f) || strings.HasPrefix(f.Annotations[filledFrom][0], "TERRACE_")) {
			continue // a command without that flag, or one that was given
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			err = list.Replace(value)
			f.Changed = true
		} else {
			err = cmd.Flags().Set(key, value[0])
		}
		if err != nil {
			return "", dataErrorf("preset %s: --%s: %w", path, key, err)
		}
		_ = cmd.Flags().SetAnnotation(key, filledFrom, []string{path})
	}
	return values[fromKey][0], nil
}

// modelPreset applies the preset that --model names.
func (l *library) modelPreset(cmd *cobra.Command, args []string) error {
	f := cmd.Flags().Lookup("model")
	if f == nil || cmd.Name() == "create" || cmd.Name() == "chat" && len(args) > 0 || cmd.CalledAs() == "run" && len(args) > 0 && l.namesModelOrPreset(args[0]) {
		return nil // the model is an argument, or there is none
	}
	model, err := l.usePreset(cmd, f.Value.String())
	if err == nil && model != f.Value.String() {
		err = f.Value.Set(model)
	}
	return err
}

func (l *library) namesModelOrPreset(arg string) bool {
	if namesModel(arg) {
		return true
	}
	_, ok, err := l.preset(arg)
	return ok || err != nil
}

type createCommand struct {
	*app

	load      loadFlags
	sample    sampleFlags
	kv        kvFlags
	speculate speculateFlags
	system    string
	from      string
	force     bool
}

func newCreate(a *app) *cobra.Command {
	c := &createCommand{app: a}
	cmd := &cobra.Command{
		Use:   "create NAME --from MODEL",
		Short: "Make a preset: a model with its system message, template, stops and sampling",
		Long: "Make a preset, a YAML file in the home folder that names a model and values of flags, from those that are given. Its name is then taken wherever a model's is: " +
			"'infer chat NAME', 'infer run NAME', 'infer generate -m NAME', 'infer serve -m NAME'. What a command line gives comes before the preset. 'infer list' shows presets, 'infer rm NAME' deletes one; the file may be edited.\n\n" +
			"A preset sets: " + strings.Join(presetFlags, ", ") + ". A chat template is copied beside it.",
		Example: "  infer create pirate --from smollm2 --system \"You are a pirate.\" --temperature 0.9\n  infer chat pirate",
		Args:    exactArgs(1, "NAME"),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0]) },
	}
	c.load.addRun(cmd)
	c.load.addTemplate(cmd)
	c.sample.add(cmd, 256)
	c.kv.add(cmd)
	c.speculate.add(cmd)
	p := cmd.Flags()
	p.StringVar(&c.system, "system", "", "system message")
	p.StringVar(&c.from, fromKey, "", "the model: a name, file or folder (required)")
	p.BoolVar(&c.force, "force", false, "write over the preset of that name")
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(append([]string{fromKey, "force"}, presetFlags...), flag.Name) {
			flag.Hidden = true
		}
	})
	return cmd
}

// create writes a preset of the flags that the command line gives.
func (c *createCommand) run(cmd *cobra.Command, name string) error {
	path := c.presetFile(name)
	switch {
	case path == "":
		return usageErrorf("create: %q: want a name of small letters, digits, dots and dashes, NAME or NAME:TAG", name)
	case namesModel(name) || hub.Known(name):
		return usageErrorf("create: %q is a model's name already", name)
	case c.from == "":
		return usageErrorf("create: want --from MODEL")
	}
	if _, err := os.Stat(path); err == nil && !c.force {
		return usageErrorf("create: %s is there already: --force writes over it", path)
	}
	if err := c.check(); err != nil {
		return err
	}
	if _, ok, err := c.preset(c.from); ok || err != nil {
		return errors.Join(err, usageErrorf("create: %s is a preset: name the model that it is made from", c.from))
	}
	if !namesModel(c.from) && !strings.Contains(c.from, ":") {
		return dataErrorf("create: no model is called %q%s", c.from, hub.DidYouMean(c.from))
	}
	out := yaml.MapSlice{{Key: fromKey, Value: absolute(c.from)}}
	for _, key := range presetFlags {
		flag := cmd.Flags().Lookup(key)
		if flag == nil || !flag.Changed || filled(flag) {
			continue
		}
		switch value := flag.Value.(type) {
		case pflag.SliceValue:
			list := value.GetSlice()
			if key == "lora" {
				for i := range list {
					list[i] = absolute(list[i])
				}
			}
			out = append(out, yaml.MapItem{Key: key, Value: list})
		default:
			out = append(out, yaml.MapItem{Key: key, Value: flag.Value.String()})
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if c.load.templateFile != "" {
		text, err := c.readText(c.load.templateFile)
		if err != nil {
			return err
		}
		own := strings.TrimSuffix(path, ".yaml") + ".jinja"
		if err := replace.WriteFile(own, []byte(text), 0o644); err != nil {
			return err
		}
		for i := range out {
			if out[i].Key == "chat-template" {
				out[i].Value = own
			}
		}
	}
	text, err := yaml.Marshal(out)
	if err != nil {
		return err
	}
	if err := replace.WriteFile(path, text, 0o644); err != nil {
		return err
	}
	c.notice("preset %s: %s", name, path)
	return nil
}

// check refuses values that no command would take.
func (c *createCommand) check() error {
	if _, err := c.sample.request(); err != nil {
		return err
	}
	if err := c.speculate.check(); err != nil {
		return err
	}
	if _, err := c.load.options(); err != nil {
		return err
	}
	if _, err := c.load.adapters(); err != nil {
		return err
	}
	_, err := expandPolicies([]string{orDefault(c.kv.policy, "full")}, nil)
	return err
}

// absolute is the path of a file or folder from the root (a scale behind it stays), a name as it is.
func absolute(name string) string {
	path, scale := name, ""
	if at := strings.LastIndex(name, "="); at >= 0 {
		path, scale = name[:at], name[at:]
	}
	if _, err := os.Stat(path); err != nil {
		return name
	}
	if full, err := filepath.Abs(path); err == nil {
		return full + scale
	}
	return name
}

// removePreset deletes the preset of a name, and its template; false where there is none.
func (l *library) removePreset(name string) (bool, error) {
	path := l.presetFile(name)
	if path == "" {
		return false, nil
	}
	err := os.Remove(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if own := strings.TrimSuffix(path, ".yaml") + ".jinja"; err == nil {
		if gone := os.Remove(own); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = gone
		}
	}
	if err != nil {
		return false, fmt.Errorf("preset %s: %w", name, err)
	}
	return true, nil
}
