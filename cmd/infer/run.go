package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"terrace/hub"
)

// runModel takes the model's name off the arguments of 'infer run MODEL [PROMPT…]', where the first is one. The rest is one
// prompt, as Ollama takes it.
func (gen *generateCommand) runModel(cmd *cobra.Command, args []string) ([]string, error) {
	if len(args) == 0 {
		return args, nil
	}
	if !gen.namesModelOrPreset(args[0]) {
		hint := hub.DidYouMean(args[0])
		if len(args) > 1 {
			return nil, usageErrorf("run takes a model and a prompt, or one prompt in quotes; no model is called %q%s", args[0], hint)
		}
		if hint != "" {
			gen.notice("no model is called %q%s It is taken as the prompt of %s.", args[0], hint, gen.load.model)
		}
		return args, nil
	}
	if err := gen.load.takeModel(gen.app, cmd, args[:1]); err != nil {
		return nil, err
	}
	if args = args[1:]; len(args) > 1 {
		args = []string{strings.Join(args, " ")}
	}
	return args, nil
}

// namesModel reports whether an argument is the name of a model, a model file or a model's folder.
func namesModel(arg string) bool {
	if hub.Known(arg) {
		return true
	}
	info, err := os.Stat(arg)
	switch {
	case err != nil:
		return false
	case info.IsDir():
		_, err := os.Stat(filepath.Join(arg, "config.json"))
		return err == nil
	}
	return strings.EqualFold(filepath.Ext(arg), ".gguf")
}

// talk reports whether 'infer run MODEL' is to be a chat: nothing says what the prompt is, and somebody types.
func (gen *generateCommand) talk(args []string) bool {
	return len(args) == 0 && gen.prompt == "" && gen.promptFile == "" && gen.idsFile == "" && !gen.raw && !gen.asJSON && gen.stdinIsTerminal()
}

func (gen *generateCommand) asChat() *chatCommand {
	c := &chatCommand{app: gen.app, load: gen.load, sample: gen.sample, kv: gen.kv, speculate: gen.speculate, system: gen.system}
	if !gen.sample.maxGiven {
		c.sample.maxTokens = chatMaxTokens
	}
	return c
}
