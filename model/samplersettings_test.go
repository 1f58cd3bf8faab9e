package model

import (
	"os"
	"path/filepath"
	"testing"

	"terrace/weights"
)

// TestOwnSampling: what a model's makers chose is read from their files, and is below what anybody else chooses.
func TestOwnSampling(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "generation_config.json")
	if s, err := folderSampling(path); err != nil || s != (SamplerSettings{}) {
		t.Errorf("no file: %+v, %v", s, err)
	}
	for text, want := range map[string]*SamplerOptions{
		`{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.05, "eos_token_id": [1, 2]}`: {Temperature: 0.6, TopK: 20, TopP: 0.95, TopPSet: true, MinP: 0.1, RepetitionPenalty: 1.05},
		`{"eos_token_id": 2}`:    {Temperature: 1, TopK: 7},
		`{"temperature": "hot"}`: nil, `{"top_k": 1.5}`: nil, `{`: nil,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := folderSampling(path)
		o := SamplerOptions{Temperature: 1, TopK: 7}
		if s.Apply(&o); (err != nil) != (want == nil) || want != nil && o != *want {
			t.Errorf("%s: %+v, %v", text, o, err)
		}
	}
	meta := &weights.Meta{}
	for key, v := range map[string]any{"temp": float32(0.5), "top_k": int32(3), "top_p": float32(0.25), "penalty_repeat": float32(1.5), "penalty_last_n": int32(-1)} {
		meta.Set("general.sampling."+key, v)
	}
	s, err := ggufSampling(meta)
	o := SamplerOptions{MinP: 0.5}
	if s.Apply(&o); err != nil || o != (SamplerOptions{Temperature: 0.5, TopK: 3, TopP: 0.25, TopPSet: true, RepeatPenalty: 1.5, PenaltyLast: -1, PenaltyLastSet: true, MinP: 0.5}) {
		t.Errorf("%+v, %v", o, err)
	}
	zero, mine := 0.0, SamplerSettings{}
	mine.Temperature = &zero
	o = SamplerOptions{Temperature: 1}
	over := mine.Over(s)
	if over.Apply(&o); o.Temperature != 0 || o.TopK != 3 {
		t.Errorf("mine over theirs: %+v", o)
	}
	if meta.Set("general.sampling.top_k", "many"); true {
		if _, err := ggufSampling(meta); err == nil {
			t.Error("top_k of words is taken")
		}
	}
}
