package main

import (
	"slices"

	"github.com/spf13/pflag"

	"terrace/model"
	"terrace/serve"
	"terrace/tokenizer"
)

// addChain adds the samplers beside top-k, top-p and min-p, under llama.cpp's names and with its defaults.
func (f *sampleFlags) addChain(p *pflag.FlagSet) {
	d := &f.o.DRY
	p.Float64Var(&f.o.TypicalP, "typical-p", f.o.TypicalP, "draw from the tokens that are about as surprising as expected, up to this probability (1: all)")
	p.Float64Var(&f.o.TypicalP, "typical", f.o.TypicalP, "alias of --typical-p")
	p.Float64Var(&f.o.TopNSigma, "top-n-sigma", -1, "drop tokens whose logit is this many standard deviations under the largest (0 or less: none)")
	p.Float64Var(&f.o.TopNSigma, "top-nsigma", -1, "alias of --top-n-sigma")
	p.Float64Var(&f.o.XTCProbability, "xtc-probability", 0, "how often XTC drops all but the least likely of the tokens that reach --xtc-threshold (0: never)")
	p.Float64Var(&f.o.XTCThreshold, "xtc-threshold", f.o.XTCThreshold, "probability from which XTC drops (more than 0.5: never)")
	p.Float64Var(&d.Multiplier, "dry-multiplier", 0, "penalty on tokens that go on with a repetition (DRY); 0.8 is usual (0: none)")
	p.Float64Var(&d.Base, "dry-base", d.Base, "how fast DRY's penalty grows with the repetition's length")
	p.IntVar(&d.AllowedLength, "dry-allowed-length", d.AllowedLength, "tokens of a repetition from which DRY counts")
	p.IntVar(&d.Last, "dry-penalty-last-n", d.Last, "tokens in which DRY looks for repetitions (0: none, -1: all)")
	p.StringArrayVar(&f.breakers, "dry-sequence-breaker", model.DefaultBreakers, "text that repetitions do not reach beyond (repeats; instead of the default; none: no such text)")
	p.IntVar(&f.o.Mirostat, "mirostat", 0, "keep the surprise of tokens near --mirostat-ent, by version 1 or 2; penalties and other filters have no effect then (0: off)")
	p.Float64Var(&f.o.MirostatTau, "mirostat-ent", f.o.MirostatTau, "surprise that Mirostat aims at, in bits (tau)")
	p.Float64Var(&f.o.MirostatEta, "mirostat-lr", f.o.MirostatEta, "how fast Mirostat learns (eta)")
	_ = p.MarkHidden("typical")
	_ = p.MarkHidden("top-nsigma")
}

// dryBreakers are the texts of --dry-sequence-breaker.
func (f *sampleFlags) dryBreakers() ([]string, error) {
	if slices.Equal(f.breakers, []string{"none"}) {
		return nil, nil
	}
	for _, s := range f.breakers {
		if s == "" || len(s) > model.MaxBreakerBytes {
			return nil, usageErrorf("--dry-sequence-breaker: a text of %d bytes, want 1 to %d", len(s), model.MaxBreakerBytes)
		}
	}
	return f.breakers, nil
}

// breakersOf are the tokens that DRY's repetitions end at; nil where it is off.
func (f *sampleFlags) breakersOf(t *tokenizer.Tokenizer) (*model.Breakers, error) {
	if f.o.DRY.Multiplier == 0 || len(f.breakers) == 0 {
		return nil, nil
	}
	return serve.NewBreakers(t, f.breakers)
}
