package policy

import (
	"fmt"

	"terrace/internal/cacheshape"
)

// ActsOn is on which layers policies act, for people.
const ActsOn = "layers that read all of a text's keys: those with a window or a state stay whole, one that reads an earlier layer's follows it; latent keys count by the token, a sink as attention that goes to nobody; budgets count these layers alone"

// Acts reports whether policies act on a layer: it keeps keys and values of its own, and all of them are read (no sliding window).
// Layers that share those of an earlier one follow its decisions.
func (m Model) Acts(layer int) bool {
	return m.Layers.Keeps(layer) && m.Layers[layer].KV.Window == 0
}

// one is the KV of the layers that policies act on, for a policy whose sketch has one width in all of them.
func (m Model) one(policy string) (kv cacheshape.KV, err error) {
	for i := range m.Layers {
		switch {
		case !m.Acts(i) || m.Layers[i].KV == kv:
		case kv == cacheshape.KV{}:
			kv = m.Layers[i].KV
		default:
			other := m.Layers[i].KV
			return kv, fmt.Errorf("policy: %s: layers with %d KV heads of %d/%d numbers and with %d of %d/%d: it takes one width: %w",
				policy, kv.Heads, kv.KeyDim, kv.ValueDim, other.Heads, other.KeyDim, other.ValueDim, ErrModel)
		}
	}
	if kv == (cacheshape.KV{}) {
		return kv, fmt.Errorf("policy: %s: no layer reads all keys of a text: there is nothing to choose from: %w", policy, ErrModel)
	}
	return kv, nil
}
