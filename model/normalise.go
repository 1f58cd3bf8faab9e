package model

import "terrace/internal/kernels"

// Normalise is the norm that a block puts on a row x [Hidden] before its products, in place; models whose blocks norm what comes
// out have none.
func (m *Model) Normalise(p NormParams, x []float32) error {
	if m.PostNorm || p.W.Absent() {
		return nil
	}
	weight, err := p.W.Values()
	if err != nil {
		return err
	}
	bias, err := p.B.Values()
	if err != nil {
		return err
	}
	if m.Norm == LayerNorm {
		kernels.LayerNorm(x, x, weight, bias, m.NormEps)
		return nil
	}
	kernels.RMSNorm(x, x, weight, m.NormEps)
	return nil
}
