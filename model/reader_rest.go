package model

import (
	"fmt"
	"slices"
	"strings"

	"terrace/weights"
)

// ofDecoder are what the names of a decoder's tensors begin with. GGUF files have others beside them: towers for images and sound, heads that
// classify or embed, what somebody left there.
var ofDecoder = []string{"blk.", "token_", "position_", "rope_", "output", "per_layer_", "altup_"}

// unread refuses a GGUF file with a tensor that the architecture did not ask for: what it would change would be missing from the results.
func unread(r *reader, c *Config) error {
	if r.file.Format() != "gguf" {
		return nil // a folder's view has what was mapped to it
	}
	var names []string
	for _, t := range r.file.Tensors() {
		if !r.read[t.Name] && !mayRest(r, c, t.Name) {
			names = append(names, t.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	more := ""
	if len(names) > 1 {
		more = fmt.Sprintf(" and %d more", len(names)-1)
	}
	return fmt.Errorf("tensor %q%s: architecture %s has no use for it here, and results without it would be others than the model's: %w", names[0], more, r.arch, ErrFeature)
}

// mayRest reports whether a tensor that nobody read changes nothing: of no layer that the model has, or a scale of activations, which are not
// quantised by it here.
func mayRest(r *reader, c *Config, name string) bool {
	if !slices.ContainsFunc(ofDecoder, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
		return true
	}
	if strings.HasSuffix(name, ".input_scale") || weights.Folded(r.file, name) {
		return true
	}
	var layer int
	_, err := fmt.Sscanf(name, "blk.%d.", &layer)
	return err == nil && layer >= c.Layers
}
