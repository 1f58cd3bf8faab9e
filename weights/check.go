package weights

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxLayers is more than any model has.
const maxLayers = 1024

// check refuses what contradicts itself in any architecture; all faults are joined.
func (m *Model) check() error {
	arch, err := m.meta.String("general.architecture")
	if err != nil {
		return m.faultf("%w", err)
	}
	if arch == "" {
		return m.faultf("general.architecture is empty")
	}
	return errors.Join(m.checkLayers(arch), m.checkVocabulary())
}

// checkLayers compares block_count with the layers that there are tensors for. A model without the key is left to package
// model, which knows whether the architecture needs it.
func (m *Model) checkLayers(arch string) error {
	key := arch + ".block_count"
	if !m.meta.Has(key) {
		return nil
	}
	count, err := m.meta.Int(key)
	if err != nil {
		return m.faultf("%w", err)
	}
	if count < 1 || count > maxLayers {
		return m.faultf("%s is %d, want 1 to %d", key, count, maxLayers)
	}
	present := make([]bool, count)
	for _, t := range m.tensors {
		layer, part, ok := layerOf(t.Name)
		switch {
		case !ok:
		case layer < count:
			present[layer] = true
		case m.Has("blk.0." + part): // a leftover that no layer has is unused, not a layer
			return m.faultf("tensor %q belongs to layer %d, but %s is %d", t.Name, layer, key, count)
		}
	}
	for layer, ok := range present {
		if !ok {
			return m.faultf("%s is %d, but no tensor blk.%d.* is there: %w", key, count, layer, ErrMissingTensor)
		}
	}
	return nil
}

// layerOf splits blk.N.PART.
func layerOf(name string) (layer int, part string, ok bool) {
	rest, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		return 0, "", false
	}
	digits, part, ok := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(digits)
	return layer, part, ok && err == nil && layer >= 0
}

// checkVocabulary compares the token list, where the metadata has one, with the rows of the embedding.
func (m *Model) checkVocabulary() error {
	const key, name = "tokenizer.ggml.tokens", "token_embd.weight"
	if !m.meta.Has(key) || !m.Has(name) {
		return nil
	}
	if rows, tokens := m.byName[name].Rows(), m.meta.Len(key); rows != tokens {
		return m.faultf("vocabulary: %s has %d tokens, %s has %d rows", key, tokens, name, rows)
	}
	return nil
}

func (m *Model) faultf(format string, args ...any) error {
	return formatError{fmt.Errorf("weights: %s: "+format, append([]any{m.path}, args...)...)}
}
