package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"terrace/hub"
	"terrace/internal/settings"
)

func init() { register(newCreate) }

// A preset (internal/settings) counts as a model's name wherever one is taken. The command line and the environment come before it, the
// configuration file after it.

// presetFlags are what a preset may set.
var presetFlags = []string{"system", "chat-template", "stop", "temperature", "top-k", "top-p", "min-p", "repeat-penalty", "repeat-last-n", "repetition-penalty", "own-sampling", "frequency-penalty", "presence-penalty", "typical-p", "top-n-sigma", "xtc-probability", "xtc-threshold", "dry-multiplier", "dry-base", "dry-allowed-length", "dry-penalty-last-n",
	"dry-sequence-breaker", "mirostat", "mirostat-ent", "mirostat-lr", "seed", "max-tokens", "ignore-eos",
	"context", "on-overflow", "kv-type", "policy", "lora", "speculate"}

// presets are those of the home folder.
func (l *library) presets() settings.Presets {
	return settings.Presets{Dir: filepath.Join(l.home(), "presets"), Keys: presetFlags}
}

// preset reads the preset of a name; false where there is none, or a file, folder or model of that name.
func (l *library) preset(name string) (settings.Preset, bool, error) {
	if namesModel(name) {
		return settings.Preset{}, false, nil
	}
	p, ok, err := l.presets().Read(name)
	if err != nil {
		err = dataErrorf("%w", err)
	}
	return p, ok, err
}

// usePreset gives the flags of a command the values of the preset that its model names, where neither the command line nor the
// environment has set them, and the model that it is made from.
func (l *library) usePreset(cmd *cobra.Command, name string) (model string, err error) {
	preset, ok, err := l.preset(name)
	if !ok || err != nil {
		return name, err
	}
	path := l.presets().File(name)
	for key, value := range preset.Values {
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
	return preset.From, nil
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
	p.StringVar(&c.from, settings.FromKey, "", "the model: a name, file or folder (required)")
	p.BoolVar(&c.force, "force", false, "write over the preset of that name")
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(append([]string{settings.FromKey, "force"}, presetFlags...), flag.Name) {
			flag.Hidden = true
		}
	})
	return cmd
}

// create writes a preset of the flags that the command line gives.
func (c *createCommand) run(cmd *cobra.Command, name string) error {
	path := c.presets().File(name)
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
	var values []settings.Value
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
			values = append(values, settings.Value{Key: key, Value: list})
		default:
			values = append(values, settings.Value{Key: key, Value: flag.Value.String()})
		}
	}
	var template []byte
	if c.load.templateFile != "" {
		text, err := c.readText(c.load.templateFile)
		if err != nil {
			return err
		}
		template = []byte(text)
	}
	if err := c.presets().Write(name, absolute(c.from), values, template); err != nil {
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
