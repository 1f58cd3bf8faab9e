package model

import (
	"fmt"
	"strings"

	"terrace/weights"
)

// besideDecoder are prefixes of tensors that GGUF files have beside the decoder: towers for images and sound, heads that classify or embed.
var besideDecoder = []string{"v.", "a.", "mm.", "cls.", "cls_", "dense_"}

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

// mayRest reports whether a tensor that nobody read changes nothing: of layers that guess further tokens, or a scale of activations, which are
// not quantised by it here.
func mayRest(r *reader, c *Config, name string) bool {
	for _, prefix := range besideDecoder {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	if strings.HasSuffix(name, ".input_scale") || weights.Folded(r.file, name) {
		return true
	}
	var layer int
	_, err := fmt.Sscanf(name, "blk.%d.", &layer)
	return err == nil && layer >= c.Layers && layer < c.Layers+r.unread
}
