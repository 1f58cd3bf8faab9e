package engine

import (
	"crypto/sha256"
	"fmt"

	"terrace/model"
	"terrace/offload"
)

// openStore opens a tier below host memory.
func (e *Engine) openStore(t Tier) (offload.Store, error) {
	switch t.Kind {
	case TierSSD:
		s, err := offload.OpenSSD(e.shape(), offload.SSDOptions{Dir: t.Path, CapacityBytes: t.Bytes})
		if err != nil {
			return nil, fmt.Errorf("engine: tier ssd=%s: %w", t.Path, err)
		}
		return s, nil
	}
	return nil, fmt.Errorf("engine: tier %s: %w", t.Kind, model.ErrUnsupported)
}

// fingerprint tells models apart whose KV must not be taken for each other's.
func fingerprint(m *model.Model) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s %d %d %d %d %d %d %d", m.Arch, m.Layers, m.Hidden, m.Heads, m.KVHeads, m.KeyDim, m.ValDim, m.Vocab))
}
