package serve

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"terrace/tokenizer"
)

// infillRequest is one of llama.cpp's /infill; source: its tools/server/README.md.
type infillRequest struct {
	llamaRequest
	Before *string       `json:"input_prefix"`
	Behind *string       `json:"input_suffix"`
	Extra  []infillExtra `json:"input_extra"`
}

// infillExtra is a text that is read before, with the name of its file.
type infillExtra struct {
	File *string `json:"filename"`
	Text *string `json:"text"`
}

// noFIM refuses a field that a vocabulary has no tokens for.
func noFIM(field string) *Error {
	return badField(field, "text is not filled into the middle here: this model's vocabulary has no FIM tokens (prefix, suffix, middle)")
}

// infill answers POST /infill.
func (s llamaCPP) infill(w http.ResponseWriter, r *http.Request) error {
	var in infillRequest
	received := time.Now()
	if err := decodeHinted(w, r, &in, &in.hintFields, llamaHints, samplerHints, thoughtHints, accountHints); err != nil {
		return err
	}
	if _, ok := s.o.Tokenizer.FIM(); !ok {
		wrong := noFIM("infill")
		wrong.Status, wrong.Code = http.StatusNotImplemented, "not_implemented"
		return wrong
	}
	var here string
	switch {
	case in.Before == nil:
		return badField("input_prefix", "it is missing")
	case in.Behind == nil:
		return badField("input_suffix", "it is missing")
	case len(in.Prompt) > 0 && in.Prompt.Kind() != 'n' && json.Unmarshal(in.Prompt, &here) != nil:
		return badField("prompt", "want text")
	case len(in.Extra) > maxPrompts:
		return badField("input_extra", "%d texts, want at most %d", len(in.Extra), maxPrompts)
	}
	return s.llamaAnswer(w, r, &in.llamaRequest, received, func(req *Request) error {
		return s.fillIn(r.Context(), req, *in.Before, here, *in.Behind, in.Extra)
	})
}

// fillIn makes a prompt that has the model write what is between before (which goes on with here) and behind, as llama.cpp
// makes it, but for BOS, which is first, and for long texts, which are not cut.
func (s *Server) fillIn(ctx context.Context, req *Request, before, here, behind string, extra []infillExtra) error {
	fim, _ := s.o.Tokenizer.FIM()
	var err error
	encode := func(field, text string) (ids []int) {
		if err == nil {
			ids, err = s.encodePrompt(ctx, field, text, tokenizer.EncodeOptions{})
		}
		return ids
	}
	var prompt []int
	if bos, ok := s.o.Tokenizer.BOS(); ok && s.o.Tokenizer.AddsBOS() {
		prompt = append(prompt, bos)
	}
	if fim.Repo >= 0 {
		prompt = slices.Concat(prompt, []int{fim.Repo}, encode("infill", "myproject\n"))
	}
	for i, x := range extra {
		if x.Text == nil {
			return badField("input_extra", "text %d is missing", i)
		}
		name := "tmp"
		if x.File != nil {
			name = *x.File
		}
		if fim.File >= 0 {
			prompt = slices.Concat(prompt, []int{fim.File}, encode("input_extra", name+"\n"))
		} else {
			prompt = append(prompt, encode("input_extra", "\n\n--- snippet ---\n\n")...)
		}
		prompt = append(prompt, encode("input_extra", *x.Text)...)
	}
	if fim.File >= 0 {
		prompt = slices.Concat(prompt, []int{fim.File}, encode("infill", "filename\n"))
	}
	prompt = slices.Concat(prompt, []int{fim.Prefix}, encode("input_prefix", before), encode("prompt", here), []int{fim.Suffix}, encode("input_suffix", behind), []int{fim.Middle})
	req.Prompts = [][]int{prompt}
	req.StopIDs = slices.Concat(req.StopIDs, slices.DeleteFunc([]int{fim.Pad, fim.Repo, fim.File}, func(id int) bool { return id < 0 }))
	return err
}
