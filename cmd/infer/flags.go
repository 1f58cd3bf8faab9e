package main

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/adrg/xdg"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"terrace/internal/nearest"
	"terrace/internal/settings"
)

// singleDash are llama.cpp's multi-letter spellings with one dash and what they mean here.
var singleDash = map[string]string{"-hf": "--hf", "-ctk": "--cache-type-k", "-ctv": "--cache-type-v", "-sys": "--system", "-ngl": "--gpu-layers", "-cmoe": "--cpu-moe", "-ncmoe": "--n-cpu-moe"}

// expandAliases rewrites llama.cpp's single-dash spellings, which a POSIX flag parser would take apart, up to a "--".
func expandAliases(args []string) []string {
	out := make([]string, 0, len(args))
	for i, s := range args {
		if s == "--" {
			return append(out, args[i:]...)
		}
		name, value, has := strings.Cut(s, "=")
		if long, ok := singleDash[name]; ok {
			if s = long; has {
				s += "=" + value
			}
		}
		out = append(out, s)
	}
	return out
}

// envName is the environment variable of a flag: TERRACE_ and its long name in capitals.
func envName(flag string) string {
	return "TERRACE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fillFlags gives every flag that the command line left open its value from the environment, else from the YAML file:
// command line over environment over file over default.
func fillFlags(cmd *cobra.Command, configFile string) error {
	if f := cmd.Flags().Lookup("config"); configFile == "" && f != nil {
		configFile = os.Getenv(envName("config"))
	}
	if configFile == "" {
		configFile = userConfig()
	}
	var file map[string][]string
	if configFile != "" {
		var err error
		if file, err = settings.Read(configFile); err != nil {
			return err
		}
	}
	var errs []error
	known := map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		known[f.Name] = true
		if f.Changed || f.Name == "help" || f.Name == "version" || f.Name == "config" {
			return
		}
		values, from := []string(nil), ""
		if v, ok := os.LookupEnv(envName(f.Name)); ok && v != "" {
			values, from = []string{v}, envName(f.Name)
		} else if v, ok := file[f.Name]; ok {
			values, from = v, configFile
		}
		for _, v := range values {
			if err := cmd.Flags().Set(f.Name, v); err != nil {
				errs = append(errs, usageErrorf("%s: --%s: %q is not %s", from, f.Name, v, wantedValue(f, err)))
			}
			_ = cmd.Flags().SetAnnotation(f.Name, filledFrom, []string{from}) // it fails for an unknown flag only
		}
	})
	for k := range file {
		if !known[k] && !knownElsewhere(cmd.Root(), k) {
			errs = append(errs, usageErrorf("%s: no flag is called %q%s", configFile, k, nearest.Hint(k, flagNames(cmd))))
		}
	}
	return errors.Join(errs...)
}

// wantedValue says in words what values a flag takes that refused one.
func wantedValue(f *pflag.Flag, err error) string {
	switch f.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "uint", "uint64":
		return "a whole number, 0 or more"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "duration":
		return "a time such as 30s"
	}
	return "right: " + err.Error()
}

// userConfig is the configuration file of the user, "" where there is none.
func userConfig() string {
	path, err := xdg.SearchConfigFile("terrace/config.yaml")
	if err != nil {
		return ""
	}
	return path
}

// notFlags are variables that are no flag's.
var notFlags = []string{"TERRACE_DEBUG", "TERRACE_SHARED", "TERRACE_TEST_SMOLLM2", "TERRACE_TEST_GEMMA3", "TERRACE_INFER", "TERRACE_DATA", "TERRACE_HUB"}

// noticeUnknown says which TERRACE_ variables of the environment are no flag of any command.
func (a *app) noticeUnknown(root *cobra.Command) {
	known := map[string]bool{}
	for _, c := range append(root.Commands(), root) {
		for _, flag := range append(flagNames(c), localFlags(c)...) {
			known[envName(flag)] = true
		}
		for _, below := range c.Commands() {
			for _, flag := range localFlags(below) {
				known[envName(flag)] = true
			}
		}
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "TERRACE_") && !known[name] && !slices.Contains(notFlags, name) && !strings.HasPrefix(name, "TERRACE_TEST_") {
			a.notice("%s is no setting of any command%s", name, nearest.Hint(name, slices.Collect(maps.Keys(known))))
		}
	}
}

func localFlags(c *cobra.Command) (names []string) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	c.PersistentFlags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// filledFrom annotates a flag that the environment or the configuration file has set.
const filledFrom = "terrace_filled_from"

// filled reports whether a flag's value is not of the command line.
func filled(f *pflag.Flag) bool { return f.Annotations[filledFrom] != nil }

// knownElsewhere reports whether some other command has the flag, so that one file can serve several commands.
func knownElsewhere(root *cobra.Command, flag string) bool {
	for _, c := range root.Commands() {
		if c.Flags().Lookup(flag) != nil || c.PersistentFlags().Lookup(flag) != nil {
			return true
		}
	}
	return false
}
