package model

import (
	"fmt"
	"slices"
)

// Feature is something that models have beyond the plain decoder, in the words of the error that refuses it.
type Feature string

// The features of models, layers and weights that a backend may declare (OnlyPlain).
const (
	ShortConvolutions    Feature = "a short convolution"
	GatedDeltaNet        Feature = "a gated DeltaNet"
	DecaysByChannel      Feature = "a decay for each channel of a DeltaNet"
	StateSpaces          Feature = "a Mamba-2 mixer"
	SideBySide           Feature = "a recurrent mixer beside attention"
	NetworksAlone        Feature = "no mixer"
	MixersAlone          Feature = "no feed-forward network"
	LatentKeys           Feature = "latent keys"
	TrainedIndexers      Feature = "a trained indexer"
	SharedKeys           Feature = "the keys of an earlier layer"
	KeysAsValues         Feature = "values that are its keys"
	NormedValues         Feature = "norms on values"
	OutputGates          Feature = "a gate on its attention"
	Chunks               Feature = "attention in chunks"
	Temperatures         Feature = "a temperature on its queries"
	NormsAfterRotation   Feature = "norms after the rotation"
	HeadNormWeights      Feature = "norms with weights for each head"
	WholeRowNorms        Feature = "norms over all heads"
	AttentionSinks       Feature = "attention sinks"
	SparseGates          Feature = "sparse gates"
	NoPreNorms           Feature = "no norm before a block"
	LowRankResiduals     Feature = "a second residual"
	OutputFactors        Feature = "a factor on its output"
	PerLayerInputs       Feature = "inputs of each layer"
	SeveralStreams       Feature = "several streams"
	ResidualCopies       Feature = "several copies of the residual"
	ParallelBlocks       Feature = "a feed-forward network beside attention"
	ClampedActivations   Feature = "a clamped activation"
	SquaredReLUs         Feature = "squared ReLU"
	XIELUs               Feature = "xIELU"
	SigmoidRouters       Feature = "a sigmoid router"
	SparseMixers         Feature = "a sparse mixer"
	RouterBiases         Feature = "a bias to choose experts by"
	ScaledExperts        Feature = "a factor on the weights of experts"
	CappedRouters        Feature = "a soft cap on its router"
	ExpertGroups         Feature = "groups of experts"
	WeighedExpertInputs  Feature = "weights on what goes into experts"
	LatentExperts        Feature = "experts that work on a latent"
	SharedExperts        Feature = "a shared expert"
	ExpertBiases         Feature = "biases on experts"
	ExpertFactors        Feature = "factors on experts"
	ExpertsBesideNetwork Feature = "a feed-forward network beside experts"
	LogitBiases          Feature = "a bias on its logits"
)

// OnlyPlain refuses models that have something beyond the plain decoder which a backend does not declare: ErrUnsupported with the first such
// feature, and the layer that has it.
func (m *Model) OnlyPlain(backend string, also ...Feature) error {
	if err := m.PlainOutside(backend, also...); err != nil {
		return err
	}
	for _, f := range m.expertFeatures() {
		if !slices.Contains(also, f) {
			return m.cannot(backend, f)
		}
	}
	for i := range m.Layer {
		if f := m.Beyond(i, also...); f != "" {
			return fmt.Errorf("model: backend %s cannot compute %s, which layer %d of %s has: %w", backend, f, i, m.Arch, ErrUnsupported)
		}
	}
	return nil
}

// PlainOutside is OnlyPlain of what all layers have in common, routers and experts excepted.
func (m *Model) PlainOutside(backend string, also ...Feature) error {
	for _, f := range m.features() {
		if !slices.Contains(also, f) {
			return m.cannot(backend, f)
		}
	}
	return nil
}

func (m *Model) cannot(backend string, f Feature) error {
	return fmt.Errorf("model: backend %s cannot compute %s, which %s has: %w", backend, f, m.Arch, ErrUnsupported)
}

// Beyond is the first feature of a layer beyond the plain decoder that a backend does not declare; empty = there is none.
func (m *Model) Beyond(layer int, also ...Feature) Feature {
	for _, f := range append(m.Layer[layer].features(layer), m.Params.Layers[layer].features(m.PostNorm)...) {
		if !slices.Contains(also, f) {
			return f
		}
	}
	return ""
}

// conditions are the features that hold.
type conditions []Feature

func (c *conditions) when(holds bool, f Feature) {
	if holds {
		*c = append(*c, f)
	}
}

// features are those of the model as a whole.
func (m *Model) features() []Feature {
	var c conditions
	c.when(m.Streams.Count > 0, SeveralStreams)
	c.when(m.PerLayer > 0, PerLayerInputs)
	c.when(m.Parallel, ParallelBlocks)
	c.when(m.Act == ClampedSwiGLU, ClampedActivations)
	c.when(m.Act == SquaredReLU, SquaredReLUs)
	c.when(m.Act == XIELU, XIELUs)
	c.when(m.Copies > 1, ResidualCopies)
	c.when(m.Params.Output != nil && m.Params.Output.Bias != nil, LogitBiases)
	return c
}

// expertFeatures are those of the model's mixtures of experts.
func (m *Model) expertFeatures() []Feature {
	var c conditions
	c.when(m.MoELatent > 0, LatentExperts)
	c.when(m.Shared > 0, SharedExperts)
	r := &m.Router
	c.when(r.Score == SigmoidRouter, SigmoidRouters)
	c.when(r.Score == SparseMixer, SparseMixers)
	c.when(r.Bias, RouterBiases)
	c.when(r.Scale != 0 || r.Least != 0, ScaledExperts)
	c.when(r.Softcap != 0, CappedRouters)
	c.when(r.Groups != 0, ExpertGroups)
	c.when(r.OnInput, WeighedExpertInputs)
	return c
}

func (l *LayerConfig) features(layer int) []Feature {
	var c conditions
	c.when(l.Conv != nil, ShortConvolutions)
	c.when(l.Delta != nil, GatedDeltaNet)
	c.when(l.Delta != nil && l.Delta.ByChannel, DecaysByChannel)
	c.when(l.SSM != nil, StateSpaces)
	c.when(l.Recurs() && l.Heads > 0, SideBySide)
	c.when(!l.Recurs() && l.Heads == 0, NetworksAlone)
	c.when(l.Latent != nil, LatentKeys)
	c.when(l.Index != nil, TrainedIndexers)
	c.when(l.Heads > 0 && l.Owner != layer, SharedKeys)
	c.when(l.Gate != NoGate, OutputGates)
	c.when(l.Chunk > 0, Chunks)
	c.when(l.Temperature.Scale != 0, Temperatures)
	c.when(l.NormAfterRope, NormsAfterRotation)
	c.when(l.HeadNorms, HeadNormWeights)
	c.when(l.Sparse, SparseGates)
	c.when(l.NoFFN, MixersAlone)
	return c
}

func (l *LayerParams) features(postNorm bool) []Feature {
	var c conditions
	c.when(!postNorm && (l.AttnNorm.W.Absent() && !l.PostAttnNorm.W.Absent() || l.FFNNorm.W.Absent() && !l.PostFFNNorm.W.Absent()), NoPreNorms)
	c.when(l.Beside != nil, ExpertsBesideNetwork)
	c.when(!l.ExpertScale.Absent(), ExpertFactors)
	c.when(!l.VNorm.W.Absent(), NormedValues)
	c.when(l.K != nil && l.V == nil, KeysAsValues)
	c.when(!l.OutScale.Absent(), OutputFactors)
	c.when(l.Laurel != nil, LowRankResiduals)
	c.when(!l.Sinks.Absent(), AttentionSinks)
	c.when(!l.QNorm.W.Absent() && len(l.QNorm.W.Tensor.Shape) == 1 && l.Q != nil && l.QNorm.W.Tensor.Shape[0] == l.Q.Rows && l.K != nil && l.Q.Rows != l.K.Rows, WholeRowNorms)
	c.when(len(l.ExpertUp) > 0 && l.ExpertUp[0].Bias != nil, ExpertBiases)
	return c
}
