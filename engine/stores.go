package engine

import (
	"context"
	"crypto/sha256"
	"fmt"

	"terrace/csdshim"
	"terrace/model"
	"terrace/offload"
)

// openStore opens a tier below host memory. A drive scores keys where the policy ranks tokens by what it can compute.
func (e *Engine) openStore(t Tier) (offload.Store, error) {
	switch t.Kind {
	case TierSSD:
		shape, needs := e.shape(), e.spec.Needs()
		s, err := offload.OpenSSD(shape, offload.SSDOptions{Dir: t.Path, CapacityBytes: t.Bytes, MaxIOBytes: int(e.o.underWayBytes()/8) / 4096 * 4096,
			TokenRows: needs.Together && shape.Page.TokenMajor && !shape.Page.K.Quantised() && !shape.Page.V.Quantised()})
		if err != nil {
			return nil, fmt.Errorf("engine: tier ssd=%s: %w", t.Path, err)
		}
		return s, nil
	case TierCSD:
		if n := e.shape().GroupTokens; n != csdshim.GroupTokens {
			return nil, fmt.Errorf("engine: tier csd=unix:%s: pages of %d tokens, a drive takes %d: %w", t.Path, n, csdshim.GroupTokens, ErrOption)
		}
		s, err := offload.OpenCSD(context.Background(), t.Path, e.shape(), offload.CSDOptions{Codes: e.driveCodes()})
		if err != nil {
			return nil, fmt.Errorf("engine: tier csd=unix:%s: %w", t.Path, err)
		}
		return s, nil
	}
	return nil, fmt.Errorf("engine: tier %s: %w", t.Kind, model.ErrUnsupported)
}

// driveCodes is what a drive makes of the keys for the engine's policy.
func (e *Engine) driveCodes() csdshim.Codes {
	if e.o.KType.Quantised() || e.o.VType.Quantised() {
		return csdshim.CodesNone
	}
	return driveCodes(e.spec.Needs())
}

// fingerprint tells models apart whose KV must not be taken for each other's.
func fingerprint(m *model.Model) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s %d %d %d %d %d %d %d", m.Arch, m.Layers, m.Hidden, m.Heads, m.KVHeads, m.KeyDim, m.ValDim, m.Vocab))
}
