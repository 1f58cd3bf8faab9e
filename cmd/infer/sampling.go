package main

import (
	"github.com/spf13/pflag"

	"terrace/model"
)

// samplerFlags say how a token is chosen, in every command that samples and for the requests of a server that do not say: by what is given,
// else as the model's makers have it, else as model.DefaultSampling.
type samplerFlags struct {
	o     model.SamplerOptions
	own   bool // --own-sampling
	flags *pflag.FlagSet
}

// add adds the flags; whose says what they are about.
func (f *samplerFlags) add(p *pflag.FlagSet, whose string) {
	f.o, f.flags = model.DefaultSampling(), p
	o := &f.o
	p.Float64Var(&o.Temperature, "temperature", o.Temperature, whose+"0 is greedy; what is not given, of this and the next, is as the model's makers have it (--own-sampling), else as the defaults here: from all tokens as the model weighs them")
	p.Float64Var(&o.Temperature, "temp", o.Temperature, "alias of --temperature")
	p.IntVar(&o.TopK, "top-k", o.TopK, "draw from the k likeliest tokens (0 or -1: all)")
	p.Float64Var(&o.TopP, "top-p", o.TopP, "draw from the smallest set with this probability (0: the likeliest token only, 1: all)")
	p.Float64Var(&o.MinP, "min-p", o.MinP, "drop tokens less likely than this share of the likeliest (0: none)")
	p.Float64Var(&o.RepeatPenalty, "repeat-penalty", o.RepeatPenalty, "penalty on the last --repeat-last-n tokens, the prompt's too, as llama.cpp has it (1: none)")
	p.IntVar(&o.PenaltyLast, "repeat-last-n", o.PenaltyLast, "tokens --repeat-penalty looks back at (0: none, -1: all)")
	p.Float64Var(&o.RepetitionPenalty, "repetition-penalty", o.RepetitionPenalty, "penalty on all tokens, the prompt's too, as Hugging Face has it (1: none)")
	p.BoolVar(&f.own, "own-sampling", true, "sample as generation_config.json or GGUF's sampling keys say, where nothing else does")
	_ = p.MarkHidden("temp")
}

// said are the settings of the flags that were given.
func (f *samplerFlags) said() (s model.SamplerSettings) {
	o := &f.o
	for name, take := range map[string]func(){"temperature": func() { s.Temperature = &o.Temperature }, "temp": func() { s.Temperature = &o.Temperature }, "top-k": func() { s.TopK = &o.TopK }, "top-p": func() { s.TopP = &o.TopP },
		"min-p": func() { s.MinP = &o.MinP }, "repeat-penalty": func() { s.RepeatPenalty = &o.RepeatPenalty }, "repeat-last-n": func() { s.PenaltyLast = &o.PenaltyLast },
		"repetition-penalty": func() { s.RepetitionPenalty = &o.RepetitionPenalty }, "typical-p": func() { s.TypicalP = &o.TypicalP }, "typical": func() { s.TypicalP = &o.TypicalP },
		"xtc-probability": func() { s.XTCProbability = &o.XTCProbability }, "xtc-threshold": func() { s.XTCThreshold = &o.XTCThreshold }} {
		if f.flags != nil && f.flags.Changed(name) {
			take()
		}
	}
	return s
}

// check refuses values that no sampler takes.
func (f *samplerFlags) check() error {
	o := f.o
	if err := o.Validate(); err != nil {
		return usageErrorf("%v", err)
	}
	if o.RepeatPenalty == 0 || o.RepetitionPenalty == 0 {
		return usageErrorf("repeat-penalty %g, repetition-penalty %g: want more than 0 (1: none)", o.RepeatPenalty, o.RepetitionPenalty)
	}
	if o.TypicalP == 0 {
		return usageErrorf("typical-p 0: want more than 0 to 1 (1: all)")
	}
	return nil
}

// over are the settings that were given, and where none was those of the model's makers.
func (f *samplerFlags) over(own model.SamplerSettings) model.SamplerSettings {
	s := f.said()
	if f.own {
		s = s.Over(own)
	}
	return s
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
	s := f.over(own)
	s.Apply(o)
}
