package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"terrace/engine"
	"terrace/internal/nearest"
)

// app is what every command embeds: the context that an interrupt cancels, the streams, the models that are here and the global flags.
type app struct {
	ctx        context.Context
	interrupts *interrupts

	console
	library

	cpuPath    string // --cpu, TERRACE_CPU: the kernel path to force
	configFile string // --config, TERRACE_CONFIG: YAML of flag values

	profiles profiling
	timeline timeline
	made     leftovers // of a command that fails
}

func newApp(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) *app {
	a := &app{ctx: ctx, console: console{stdin: stdin, stdout: stdout, stderr: stderr}}
	a.on = &a.console
	return a
}

// builders collects one constructor a command; each file's init adds its own.
var builders []func(a *app) *cobra.Command

func register(build func(a *app) *cobra.Command) { builders = append(builders, build) }

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run executes one command line and returns its exit code (README.md: 0 done, 1 failed, 2 usage, 3 model or data,
// 4 memory, 5 check failed, 130/143 interrupted). A panic is a bug and still ends in one line.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	ctx, interrupted := watchInterrupts()
	defer interrupted.stop()
	a := newApp(ctx, stdin, stdout, stderr)
	a.interrupts = interrupted
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(stderr, "infer: internal error (a bug, please report it): %v\n", r)
			if os.Getenv("TERRACE_DEBUG") != "" {
				stderr.Write(debug.Stack())
			}
			code = exitFailed
		}
	}()
	root := newRoot(a)
	root.SetArgs(expandAliases(args))
	err := root.ExecuteContext(ctx)
	if stopErr := errors.Join(a.profiles.stop(), a.timeline.stop()); err == nil {
		err = stopErr
	}
	if err != nil {
		a.made.clear()
	}
	if exitCode(err) == exitUsage {
		a.profiles.remove()
	}
	if sig := interrupted.signal(); sig != 0 && (err == nil || errors.Is(err, context.Canceled)) {
		if sig == syscall.SIGINT && !a.lineEnded && a.isTTY(a.stderr) {
			fmt.Fprintln(a.stderr) // the shell's prompt does not stand behind ^C
		}
		return 128 + int(sig)
	}
	if err != nil {
		say := plainly
		if slices.Contains(args, "--verbose") || os.Getenv("TERRACE_DEBUG") != "" {
			say = oneLine
		}
		fmt.Fprintf(stderr, "infer: %s\n", visible(say(err), "\n\t"))
		if crash := (*engine.Crash)(nil); errors.As(err, &crash) && os.Getenv("TERRACE_DEBUG") != "" {
			stderr.Write(crash.Stack)
		}
	}
	return exitCode(err)
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "infer",
		Short:         "Terrace: LLM inference whose KV cache lives on terraces",
		Long:          "infer generates text from local GGUF or safetensors models on the CPU, and measures what KV-cache policies cost and save.",
		Example:       "  infer generate \"Why is the sky blue?\"\n  infer chat --model gemma3:270m\n  infer bench -p 512 -n 64",
		Version:       versionLine(),
		SilenceErrors: true, SilenceUsage: true,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetIn(a.stdin)
	p := root.PersistentFlags()
	p.StringVar(&a.homeDir, "home", "", "folder of models and profiles (default: the XDG cache folder)")
	p.StringVar(&a.cpuPath, "cpu", "", "kernels to use: auto, amx, avx512, avx2, i8mm, dotprod, neon or purego (default auto)")
	p.StringVar(&a.configFile, "config", "", "YAML file of flag values, one key a flag (default: terrace/config.yaml in the XDG configuration folder, where it is)")
	p.BoolVarP(&a.quiet, "quiet", "q", false, "no notices and no progress bars on stderr")
	a.profiles.addFlags(p)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageErrorf("%s: %v%s (see 'infer %s --help')", pathOf(cmd), err, flagHint(cmd, err), pathOf(cmd))
	})
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error { return a.prepare(cmd, args) }
	for _, build := range builders {
		root.AddCommand(build(a))
	}
	addCompletions(root)
	refuseUnknown(root)
	a.foldHelp(root)
	return root
}

// refuseUnknown has 'help NAME' and 'completion NAME' refuse what they do not know.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			help := c.Run
			c.Run, c.RunE = nil, func(cmd *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); found == nil || err != nil || len(rest) > 0 {
					if found == nil {
						found, rest = root, args
					}
					return noCommand(found, rest)
				}
				help(cmd, args)
				return nil
			}
		case "completion":
			c.Args, c.RunE = noCommand, func(cmd *cobra.Command, args []string) error { return cmd.Help() }
		}
	}
}

// noCommand refuses what is no command below cmd.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			known = append(append(known, c.Name()), c.Aliases...)
		}
	}
	if meant := elsewhere[args[0]]; meant != "" && cmd.Parent() == nil {
		return usageErrorf("unknown command %q: %s", args[0], meant)
	}
	return usageErrorf("unknown command %q%s: run '%s --help' for the list", args[0], nearest.Hint(args[0], known), cmd.CommandPath())
}

// elsewhere are commands and flags that other tools have, and what does here what they do there.
var elsewhere = map[string]string{
	"ps":     "infer serve tells what it has loaded, at GET /api/ps; infer list shows what is in the cache",
	"stop":   "infer serve ends on Ctrl-C or SIGTERM",
	"cp":     "infer create gives a model a second name",
	"push":   "there is nothing to push to",
	"--host": "--addr HOST:PORT says where to listen", "--port": "--addr HOST:PORT says where to listen",
}

// pathOf is a command as it is typed behind "infer".
func pathOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// flagHint asks after the flag that an unknown one was meant to be.
func flagHint(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	if meant := elsewhere["--"+unknown.GetSpecifiedName()]; meant != "" {
		return ": " + meant
	}
	if best := nearest.Of(unknown.GetSpecifiedName(), flagNames(cmd)); best != "" {
		return ", did you mean --" + best + "?"
	}
	return ""
}

// flagNames are the names of a command's flags, those of all commands included.
func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// prepare fills the flags that the command line left open, from the environment and then the configuration file, and
// applies the global ones.
func (a *app) prepare(cmd *cobra.Command, args []string) error {
	if err := fillFlags(cmd, a.configFile); err != nil {
		return err
	}
	if err := a.modelPreset(cmd, args); err != nil {
		return err
	}
	a.noticeUnknown(cmd.Root())
	if err := a.checkTiers(cmd); err != nil {
		return err
	}
	if err := selectKernels(a.cpuPath); err != nil {
		return err
	}
	boundHeap()
	return a.profiles.start()
}

// oneLine keeps an error to one line: joined errors are separated by "; ".
func oneLine(err error) string { return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ") }
