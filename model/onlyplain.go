package model

import "fmt"

// OnlyPlain refuses models that none but the native backend computes, for backends that have the plain decoder alone; it names the first
// layer that is not plain, and what it has.
func (m *Model) OnlyPlain(backend string) error {
	if what := m.beyondPlain(); what != "" {
		return fmt.Errorf("model: backend %s computes plain decoders, %s has %s: %w", backend, m.Arch, what, ErrUnsupported)
	}
	for i := range m.Layer {
		if what := m.Layer[i].beyondPlain(i); what != "" {
			return fmt.Errorf("model: backend %s computes plain attention in every layer, layer %d of %s has %s: %w", backend, i, m.Arch, what, ErrUnsupported)
		}
		if what := m.Params.Layers[i].beyondPlain(); what != "" && !m.PostNorm {
			return fmt.Errorf("model: backend %s computes plain layers, layer %d of %s has %s: %w", backend, i, m.Arch, what, ErrUnsupported)
		}
	}
	return nil
}

func (m *Model) beyondPlain() string {
	switch {
	case m.Streams.Count > 0:
		return "several streams"
	case m.PerLayer > 0:
		return "inputs of each layer"
	case m.Parallel:
		return "a feed-forward network beside attention"
	case m.Act == ClampedSwiGLU:
		return "a clamped activation"
	case m.Act == SquaredReLU:
		return "squared ReLU"
	case m.Act == XIELU:
		return "xIELU"
	case !m.Router.plain():
		return "a router of another kind"
	case m.Copies > 1:
		return "several copies of the residual"
	case m.MoELatent > 0:
		return "experts that work on a latent"
	case m.Shared > 0:
		return "a shared expert"
	case m.Params.Output != nil && m.Params.Output.Bias != nil:
		return "a bias on its logits"
	}
	return ""
}

func (l *LayerConfig) beyondPlain(layer int) string {
	switch {
	case l.Recurs():
		return "a recurrent mixer"
	case l.Heads == 0:
		return "no attention"
	case l.Latent != nil:
		return "latent keys"
	case l.Index != nil:
		return "a trained indexer"
	case l.Owner != layer:
		return "the keys of an earlier layer"
	case l.Gate != NoGate:
		return "a gate on its attention"
	case l.Chunk > 0:
		return "attention in chunks"
	case l.Temperature.Scale != 0:
		return "a temperature on its queries"
	case l.NormAfterRope:
		return "norms after the rotation"
	case l.HeadNorms:
		return "norms with weights for each head"
	case l.Sparse:
		return "sparse gates"
	case l.NoFFN:
		return "no feed-forward network"
	}
	return ""
}

func (l *LayerParams) beyondPlain() string {
	switch {
	case l.AttnNorm.W.Absent() && !l.PostAttnNorm.W.Absent(), l.FFNNorm.W.Absent() && !l.PostFFNNorm.W.Absent():
		return "no norm before a block"
	case l.Beside != nil:
		return "a feed-forward network beside experts"
	case !l.ExpertScale.Absent():
		return "factors on experts"
	case !l.VNorm.W.Absent():
		return "norms on values"
	case l.Q != nil && l.V == nil:
		return "values that are its keys"
	case !l.OutScale.Absent():
		return "a factor on its output"
	case l.Laurel != nil:
		return "a second residual"
	case !l.Sinks.Absent():
		return "attention sinks"
	case !l.QNorm.W.Absent() && len(l.QNorm.W.Tensor.Shape) == 1 && l.Q != nil && l.QNorm.W.Tensor.Shape[0] == l.Q.Rows && l.K != nil && l.Q.Rows != l.K.Rows:
		return "norms over all heads"
	case len(l.ExpertUp) > 0 && l.ExpertUp[0].Bias != nil:
		return "biases on experts"
	}
	return ""
}
