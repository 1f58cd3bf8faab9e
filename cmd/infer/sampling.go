package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"terrace/model"
)

// samplingFlags are serve's: how requests that do not say are sampled.
type samplingFlags struct {
	temperature, topP, minP, repeat, repetition float64
	topK                                        int
	ofMaker                                     bool
	flags                                       *pflag.FlagSet
}

func (f *samplingFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	f.flags = p
	p.Float64Var(&f.temperature, "temperature", 1, "of requests that do not say, as the next ones; what is not given here is the model's own (--own-sampling), else off")
	p.IntVar(&f.topK, "top-k", 0, "the k likeliest tokens (0: all)")
	p.Float64Var(&f.topP, "top-p", 1, "the smallest set with this probability (1: all)")
	p.Float64Var(&f.minP, "min-p", 0, "tokens no less likely than this share of the likeliest (0: all)")
	p.Float64Var(&f.repeat, "repeat-penalty", 1, "llama.cpp's penalty of the last tokens (1: none)")
	p.Float64Var(&f.repetition, "repetition-penalty", 1, "Hugging Face's penalty of all tokens (1: none)")
	p.BoolVar(&f.ofMaker, "own-sampling", true, "sample as generation_config.json or GGUF's sampling keys say, where a request does not")
}

// settings are what was given, over what the model's makers say.
func (f *samplingFlags) settings(own model.SamplerSettings) (model.SamplerSettings, error) {
	var s model.SamplerSettings
	for name, x := range map[string]struct {
		v    *float64
		into **float64
	}{"temperature": {&f.temperature, &s.Temperature}, "top-p": {&f.topP, &s.TopP}, "min-p": {&f.minP, &s.MinP}, "repeat-penalty": {&f.repeat, &s.RepeatPenalty}, "repetition-penalty": {&f.repetition, &s.RepetitionPenalty}} {
		if f.flags != nil && f.flags.Changed(name) {
			*x.into = x.v
		}
	}
	if f.flags != nil && f.flags.Changed("top-k") {
		s.TopK = &f.topK
	}
	var o model.SamplerOptions
	if s.Apply(&o); o.Validate() != nil {
		return s, usageErrorf("%v", o.Validate())
	}
	if f.ofMaker {
		s = s.Over(own)
	}
	return s, nil
}

// ownSampling is how the model's makers have it sampled; what they got wrong is a notice.
func (a *app) ownSampling(l *loaded) model.SamplerSettings {
	own, err := model.OwnSampling(l.file.Weights())
	if err != nil {
		a.notice("%s: not taken", oneLine(err))
	}
	return own
}

// takeOwn makes options those of the model's makers where no flag says otherwise.
func (f *sampleFlags) takeOwn(own model.SamplerSettings, o *model.SamplerOptions) {
	for name, unset := range map[string]func(){"temperature": func() { own.Temperature = nil }, "temp": func() { own.Temperature = nil }, "top-k": func() { own.TopK = nil }, "top-p": func() { own.TopP = nil }, "min-p": func() { own.MinP = nil },
		"repeat-penalty": func() { own.RepeatPenalty = nil }, "repeat-last-n": func() { own.PenaltyLast = nil }, "repetition-penalty": func() { own.RepetitionPenalty = nil }, "typical-p": func() { own.TypicalP = nil },
		"xtc-probability": func() { own.XTCProbability = nil }, "xtc-threshold": func() { own.XTCThreshold = nil }} {
		if f.flags != nil && f.flags.Changed(name) {
			unset()
		}
	}
	own.Apply(o)
}
