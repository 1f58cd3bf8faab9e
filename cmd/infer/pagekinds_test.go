package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"terrace/csdshim/profiles"
	"terrace/eval/metrics"
	"terrace/eval/report"
	"terrace/hub"
	"terrace/internal/kvpage"
	"terrace/internal/tierspec"
	"terrace/internal/units"
	"terrace/policy"
	"terrace/simulate"
	"terrace/weights/convert"
)

// pageKind checks a value that a page gives.
type pageKind func(p *pageCheck, cmd *cobra.Command, value string) error

// parsed is a value that something reads.
func parsed(parse func(text string) error) pageKind {
	return func(_ *pageCheck, _ *cobra.Command, value string) error {
		if placeholder.MatchString(value) {
			return nil
		}
		return parse(value)
	}
}

// oneOf is one of a list.
func oneOf(list func() []string) pageKind {
	return parsed(func(text string) error {
		if known := list(); !slices.Contains(known, text) {
			return fmt.Errorf("is none of %s", strings.Join(known, ", "))
		}
		return nil
	})
}

var (
	anyText = parsed(func(string) error { return nil })
	input   = pageKind(func(p *pageCheck, _ *cobra.Command, path string) error { return p.reads(path) })
	output  = pageKind(func(p *pageCheck, _ *cobra.Command, path string) error {
		if err := p.place(path); err != nil {
			return err
		}
		p.writes(path)
		return nil
	})
	// inline is text, or a file with it.
	inline = pageKind(func(p *pageCheck, cmd *cobra.Command, value string) error {
		c := constrainFlags{schema: value}
		if !strings.HasPrefix(value, "{") {
			return p.reads(value)
		}
		_, err := c.compile()
		return err
	})
	aModel = pageKind(func(p *pageCheck, _ *cobra.Command, name string) error {
		if name = strings.TrimPrefix(name, "draft="); hub.Known(name) {
			return nil
		}
		return p.reads(name)
	})
	aPolicy = pageKind(func(_ *pageCheck, cmd *cobra.Command, spec string) error {
		var budgets []string
		if cmd.Flags().Lookup("budget") != nil {
			budgets, _ = cmd.Flags().GetStringSlice("budget")
		}
		if placeholder.MatchString(spec) {
			return nil
		}
		_, err := expandPolicies([]string{spec}, budgets)
		return err
	})
	aTier = pageKind(func(p *pageCheck, _ *cobra.Command, spec string) error {
		s, err := tierspec.Parse(spec)
		switch {
		case err != nil:
			return err
		case s.Kind == "ssd":
			return p.place(s.Place)
		case s.Kind == "csd":
			return p.reads(strings.TrimPrefix(s.Place, "unix:"))
		}
		return nil
	})
	aCase = pageKind(func(p *pageCheck, cmd *cobra.Command, text string) error {
		spec, tiers, _ := strings.Cut(text, " on ")
		errs := []error{aPolicy(p, cmd, spec)}
		for _, tier := range strings.Fields(tiers) {
			errs = append(errs, aTier(p, cmd, tier))
		}
		return errors.Join(errs...)
	})
	aCount     = parsed(func(text string) error { _, err := units.ParseCount(text); return err })
	aSize      = parsed(func(text string) error { _, err := units.ParseBytes(text); return err })
	aPlacement = parsed(func(text string) error { _, err := policy.ParsePlacement(text); return err })
	aSuite     = oneOf(func() (names []string) {
		for _, s := range suites {
			names = append(names, s.name)
		}
		return names
	})
	aTask = pageKind(func(p *pageCheck, cmd *cobra.Command, name string) error {
		suite, _ := cmd.Flags().GetString("suite")
		for _, s := range suites {
			if s.name == suite && s.tasks != nil {
				return oneOf(s.tasks)(p, cmd, name)
			}
		}
		return nil
	})
	// aDrive is a profile by its name, or a file with one.
	aDrive = pageKind(func(p *pageCheck, cmd *cobra.Command, name string) error {
		if strings.HasSuffix(name, ".toml") {
			return p.reads(name)
		}
		return oneOf(profiles.Names)(p, cmd, name)
	})
	experiment = oneOf(func() (ids []string) {
		for _, e := range simulate.List() {
			ids = append(ids, strings.Fields(e.ID)[0])
		}
		return ids
	})
)

// pageFlags say what is wrong with a flag's value, by the flag, or by command and flag where commands differ.
var pageFlags = map[string]pageKind{
	"policy": aPolicy, "tier": aTier, "store": aTier, "case": aCase, "placement": aPlacement, "weights": aTier, "methods": aPolicy,
	"budget": anyText, "keeps": parsed(func(text string) error { _, err := units.ParseShare(text); return err }),
	"kv-type": parsed(func(text string) error { _, err := kvpage.ParseTypes(text); return err }), "context": aCount, "max-context": aCount, "lengths": aCount,
	"memory": aSize, "models-memory": aSize, "size": aSize, "capacity": aSize,
	"type":  parsed(func(text string) error { _, _, err := convert.ParseKind(text); return err }),
	"suite": aSuite, "tasks": aTask, "task": oneOf(metrics.LongBenchTasks),
	"speculate": func(p *pageCheck, cmd *cobra.Command, text string) error {
		if err := (&speculateFlags{spec: text}).check(); err != nil || text == "ngram" {
			return err
		}
		return aModel(p, cmd, text)
	},
	"equal-bytes": parsed(func(text string) error { _, err := report.ParseBytesPoint(text); return err }),
	"addr":        parsed(func(text string) error { _, _, err := net.SplitHostPort(text); return err }),
	"arch":        oneOf(func() []string { return convert.SpecArchs }),
	"set": parsed(func(text string) error {
		if !strings.Contains(text, "=") {
			return errors.New("want key=value")
		}
		return nil
	}),
	"reproduce --ids": func(p *pageCheck, cmd *cobra.Command, text string) error {
		for id := range strings.SplitSeq(text, ",") {
			if err := experiment(p, cmd, id); err != nil {
				return err
			}
		}
		return nil
	},
	"lora": func(p *pageCheck, _ *cobra.Command, text string) error {
		list, err := (&loadFlags{loras: []string{text}}).adapters()
		if err != nil {
			return err
		}
		return p.reads(list[0].Path)
	},
	"profile": input, "csd serve --profile": aDrive, "csd replay --profile": aDrive,
	"model": aModel, "from": aModel, "embeddings": aModel, "embed --model": aModel,
	"prompt-file": input, "prefix-file": input, "ids-file": input, "jsonl": input, "file": input, "data": input, "imatrix": input, "hardware": input, "fit": input, "contexts": input, "instance": input,
	"kl-base": input, "api-key-file": input, "metrics-key-file": input, "decode-ids": input, "chat-template": input, "json-schema": inline, "grammar": inline,
	"eval --trace": input, "trace": output, "timeline": output, "out": output, "html": output, "svg": output, "frontier": output, "leaderboard": output, "lm-eval": output, "record-trace": output, "record-experts": output,
	"save-kl-base": output, "decode-out": output, "dir": output, "socket": output, "csd stats --socket": input, "ready-file": output, "cpu-profile": output, "memory-profile": output,
	"backend": anyText, "output": anyText, "system": anyText, "prompt": anyText, "stop": anyText, "alias": anyText, "cors": anyText, "against": anyText, "title": anyText, "format": anyText, "prompts": anyText, "workers": anyText,
	"on-overflow": anyText, "clock": anyText, "keys": anyText, "store-fetch": anyText, "store-write": anyText, "reasoning": anyText, "log": anyText, "cache-salt": anyText, "tensor": anyText, "kv-rotate": anyText, "expert-bias": anyText,
	"for": oneOf(func() []string { return []string{"kvzap", "triattention"} }), "quality": anyText, "encoder": aModel, "home": anyText, "cpu": anyText, "fault": anyText, "metrics-alias": anyText, "dtype": anyText,
}

// pageArgs are the same of a command's arguments, the last of those that follow too.
var pageArgs = map[string][]pageKind{
	"chat": {aModel}, "show": {aModel}, "fit": {aModel}, "serve": {aModel}, "quantize": {aModel, output}, "widen": {aModel, output}, "synth": {output}, "compare": {input}, "man": {output},
	"policies": {aPolicy}, "simulate": {experiment}, "profile": {output}, "csd replay": {input},
	"pull": {oneOfCatalogue}, "create": {func(p *pageCheck, _ *cobra.Command, name string) error { p.writes(name); return nil }},
}

// oneOfCatalogue is what 'infer pull' takes.
func oneOfCatalogue(_ *pageCheck, _ *cobra.Command, name string) error {
	if hub.Known(name) || placeholder.MatchString(name) || slices.ContainsFunc(hub.Catalogue(), func(m hub.Model) bool { return m.Name == name }) {
		return nil
	}
	return fmt.Errorf("no model is called so%s", hub.DidYouMean(name))
}
