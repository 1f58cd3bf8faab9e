package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"terrace/weights"
)

// SamplerSettings are options that somebody has chosen, such as the maker of a model; nil = not.
type SamplerSettings struct {
	Temperature       *float64 `json:"temperature"`
	TopK              *int     `json:"top_k"`
	TopP              *float64 `json:"top_p"`
	MinP              *float64 `json:"min_p"`
	TypicalP          *float64 `json:"typical_p"`
	RepetitionPenalty *float64 `json:"repetition_penalty"` // Hugging Face's
	RepeatPenalty     *float64 `json:"-"`                  // llama.cpp's, as the next ones
	PenaltyLast       *int     `json:"-"`
	XTCProbability    *float64 `json:"-"`
	XTCThreshold      *float64 `json:"-"`
}

// DefaultSampling is how a text is sampled where neither a request nor a flag nor the model's makers say: from all tokens as the model
// weighs them, which is OpenAI's default. Commands, server, page and Go API all begin here.
func DefaultSampling() SamplerOptions {
	return SamplerOptions{Temperature: 1, TopP: 1, TopPSet: true, RepeatPenalty: 1, PenaltyLast: 64, PenaltyLastSet: true, RepetitionPenalty: 1, TypicalP: 1, XTCThreshold: 0.1, DRY: DefaultDRY, MirostatTau: 5, MirostatEta: 0.1}
}

// Apply writes what was chosen over options.
func (s *SamplerSettings) Apply(o *SamplerOptions) {
	over(&o.Temperature, s.Temperature)
	over(&o.TopK, s.TopK)
	over(&o.TopP, s.TopP)
	over(&o.MinP, s.MinP)
	over(&o.TypicalP, s.TypicalP)
	over(&o.RepetitionPenalty, s.RepetitionPenalty)
	over(&o.RepeatPenalty, s.RepeatPenalty)
	over(&o.PenaltyLast, s.PenaltyLast)
	over(&o.XTCProbability, s.XTCProbability)
	over(&o.XTCThreshold, s.XTCThreshold)
	o.TopPSet, o.PenaltyLastSet = o.TopPSet || s.TopP != nil, o.PenaltyLastSet || s.PenaltyLast != nil
}

// Over are these settings, and where they are silent those of others.
func (s SamplerSettings) Over(others SamplerSettings) SamplerSettings {
	for _, x := range [][2]**float64{{&s.Temperature, &others.Temperature}, {&s.TopP, &others.TopP}, {&s.MinP, &others.MinP}, {&s.TypicalP, &others.TypicalP}, {&s.RepetitionPenalty, &others.RepetitionPenalty},
		{&s.RepeatPenalty, &others.RepeatPenalty}, {&s.XTCProbability, &others.XTCProbability}, {&s.XTCThreshold, &others.XTCThreshold}} {
		if *x[0] == nil {
			*x[0] = *x[1]
		}
	}
	for _, x := range [][2]**int{{&s.TopK, &others.TopK}, {&s.PenaltyLast, &others.PenaltyLast}} {
		if *x[0] == nil {
			*x[0] = *x[1]
		}
	}
	return s
}

func over[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// maxGenerationConfig bounds generation_config.json.
const maxGenerationConfig = 1 << 20

// OwnSampling is how the makers of a model have it sampled: generation_config.json beside safetensors, general.sampling.* in GGUF
// (llama.cpp). As in vLLM do_sample is not looked at. What is wrong there is an error, and nothing is taken.
func OwnSampling(w *weights.Model) (s SamplerSettings, err error) {
	if w.Format() == "gguf" {
		s, err = ggufSampling(w.Meta())
	} else {
		s, err = folderSampling(filepath.Join(w.Path(), "generation_config.json"))
	}
	if err == nil {
		o := SamplerOptions{}
		s.Apply(&o)
		err = o.Validate()
	}
	if err != nil {
		return SamplerSettings{}, fmt.Errorf("model: its own sampling: %w", err)
	}
	return s, nil
}

func folderSampling(path string) (s SamplerSettings, err error) {
	info, err := os.Stat(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return s, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxGenerationConfig {
		return s, fmt.Errorf("%s: want a file of at most %d bytes", filepath.Base(path), maxGenerationConfig)
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return SamplerSettings{}, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return s, nil
}

func ggufSampling(meta *weights.Meta) (s SamplerSettings, err error) {
	const prefix = "general.sampling."
	for key, into := range map[string]**float64{"temp": &s.Temperature, "top_p": &s.TopP, "min_p": &s.MinP, "penalty_repeat": &s.RepeatPenalty, "xtc_probability": &s.XTCProbability, "xtc_threshold": &s.XTCThreshold} {
		if !meta.Has(prefix + key) {
			continue
		}
		v, err := meta.Float(prefix + key)
		if err != nil {
			return SamplerSettings{}, err
		}
		*into = &v
	}
	for key, into := range map[string]**int{"top_k": &s.TopK, "penalty_last_n": &s.PenaltyLast} {
		if !meta.Has(prefix + key) {
			continue
		}
		v, err := meta.Int(prefix + key)
		if err != nil {
			return SamplerSettings{}, err
		}
		*into = &v
	}
	return s, nil
}
