package model

import (
	"fmt"

	"gorgonia.org/tensor"

	"terrace/internal/cacheshape"
)

// DeltaNet is the gated delta rule (Qwen3-Next, Qwen3.5; Kimi with a decay a channel). Of x, the normed row: [q|k|v] = conv(In x), silu;
// q and k are made unit length a head, q times dk^-½; β = σ(B x), g = Decay·softplus(A x + DTBias). Per value head, state S [dk, dv]:
// S ← e^g S; d = β(v − Sᵀk); S ← S + k dᵀ; o = Sᵀq. Out: RMSNorm over dv, times Norm, times the gate of Z x.
type DeltaNet struct {
	KeyHeads, ValueHeads int
	KeyDim, ValueDim     int  // of a head
	Kernel               int  // width of the causal convolution
	Modulo               bool // value head j uses key head j mod KeyHeads instead of ⌊j·KeyHeads/ValueHeads⌋
	ByChannel            bool // g is of each number of a key, [ValueHeads·KeyDim], not of a head
	Sigmoid              bool // the gate of the output is σ, not silu
}

// Mamba2 is the state space of one decay a head. Of x, the normed row: [z | u|B|C | dt] = In x; u|B|C through the convolution and silu;
// dt = softplus(dt + DTBias), within DTMin and DTMax; S ← e^(dt·Decay) S + dt·B uᵀ [State, HeadDim]; y = Sᵀ C + D·u. Out: RMSNorm(y⊙silu(z)) within each
// group, or y⊙silu(z), as Norm says.
type Mamba2 struct {
	Heads, HeadDim int
	Groups         int // of B and C, and of the norm
	State          int // numbers of B and C
	Kernel         int
	DTMin, DTMax   float32 // DTMax 0 = no bound
	Norm           SSMNorm
}

// SSMNorm is where the norm of a Mamba-2 mixer's output stands.
type SSMNorm uint8

const (
	GatedNorm    SSMNorm = iota // RMSNorm(y⊙silu(z))
	NormThenGate                // RMSNorm(y)⊙silu(z)
	NoSSMNorm                   // y⊙silu(z)
)

// ShortConv is a gated convolution (LFM2): [B|C|u] = In x; out = C ⊙ conv(B⊙u), no activation.
type ShortConv struct {
	Width  int // channels
	Kernel int
}

// RecurrentParams are the weights of a layer's recurrent mixer; what one does not have is nil. The output projection is LayerParams.O,
// or Out beside attention.
type RecurrentParams struct {
	In       []*Linear // their outputs one behind another, in the order that the mixer's description gives
	Z, A, B  *Linear   // DeltaNet: gate of the output, decay and step size
	ZDown    *Linear   // Z and A are of what these make of the row; nil = of the row itself
	ADown    *Linear
	Conv     []*Vector // [channels, Kernel], one behind another
	ConvBias *Vector
	Decay    *Vector // [heads] or [heads·KeyDim]: −e^A_log
	DTBias   *Vector // as Decay
	D        *Vector // [heads], Mamba-2
	Norm     *Vector // of the output
	Out      *Linear
}

// Recurrent is the optional capability of layers that keep state of a sequence beside keys and values, or instead.
type Recurrent interface {
	// Mix takes the rows of the pass through the recurrent mixer of a layer, sequence by sequence in order, and moves each sequence's state
	// on. It returns the mixer's output before the output projection [n, O.Cols], as Finish takes it; where the layer attends as well
	// it adds the projected output to hidden [n, D] in place instead and returns nil.
	Mix(p *Pass, layer int, hidden *tensor.Dense, states []StateRows) (*tensor.Dense, error)
}

// StateRows is one sequence's rows of a pass, and its state of a layer, which Mix changes.
type StateRows struct {
	Rows  int
	From  []float32 // before the first row: zeros before the first token
	State []float32 // after the last one; it may be From

	// Who Keeps copies lets a backend with a device leave State as it was, and put into Copy what has its numbers instead; a later Mix finds that
	// in FromCopy where From is this State. Copy is of what State was before, to be written over; what Mix leaves there is kept, nil = State has
	// the numbers.
	Keeps          bool
	FromCopy, Copy cacheshape.StateCopy
}

// channels are the inputs of a DeltaNet's convolution.
func (d *DeltaNet) channels() int { return 2*d.KeyHeads*d.KeyDim + d.ValueHeads*d.ValueDim }

// inner is the width of a Mamba-2 mixer's output.
func (s *Mamba2) inner() int { return s.Heads * s.HeadDim }

// channels are the inputs of a Mamba-2 mixer's convolution.
func (s *Mamba2) channels() int { return s.inner() + 2*s.Groups*s.State }

// stateFloats is how many numbers a layer keeps of a sequence.
func (l *LayerConfig) stateFloats() int {
	n := 0
	if d := l.Delta; d != nil {
		n += (d.Kernel-1)*d.channels() + d.ValueHeads*d.KeyDim*d.ValueDim
	}
	if s := l.SSM; s != nil {
		n += (s.Kernel-1)*s.channels() + s.Heads*s.HeadDim*s.State
	}
	if c := l.Conv; c != nil {
		n += (c.Kernel - 1) * c.Width
	}
	return n + l.NGrams.floats()
}

// Limits of recurrent mixers that no real model reaches.
const (
	maxKernel = 256
	maxWidth  = 1 << 18
)

func (l *LayerConfig) recurrentFigures() (f []figure) {
	if d := l.Delta; d != nil {
		f = append(f, figure{"ssm.group_count", d.KeyHeads, 1, maxHeads}, figure{"ssm.time_step_rank", d.ValueHeads, 1, maxHeads}, figure{"ssm.state_size", d.KeyDim, 1, maxHeadDim},
			figure{"ssm.inner_size / ssm.time_step_rank", d.ValueDim, 1, maxHeadDim}, figure{"ssm.conv_kernel", d.Kernel, 1, maxKernel})
	}
	if s := l.SSM; s != nil {
		f = append(f, figure{"ssm.time_step_rank", s.Heads, 1, maxHeads}, figure{"ssm.inner_size / ssm.time_step_rank", s.HeadDim, 1, maxHeadDim}, figure{"ssm.group_count", s.Groups, 1, maxHeads},
			figure{"ssm.state_size", s.State, 1, maxHeadDim}, figure{"ssm.conv_kernel", s.Kernel, 1, maxKernel})
	}
	if c := l.Conv; c != nil {
		f = append(f, figure{"embedding_length", c.Width, 1, maxWidth}, figure{"shortconv.l_cache", c.Kernel, 1, maxKernel})
	}
	return f
}

// validateRecurrent checks what the figures of a recurrent mixer must be to each other.
func (l *LayerConfig) validateRecurrent(i int) error {
	kinds := 0
	if d := l.Delta; d != nil {
		kinds++
		if d.ValueHeads%d.KeyHeads != 0 {
			return fmt.Errorf("model: ssm.time_step_rank %d is not a multiple of ssm.group_count %d in layer %d: %w", d.ValueHeads, d.KeyHeads, i, ErrConfig)
		}
	}
	if s := l.SSM; s != nil {
		kinds++
		if s.Heads%s.Groups != 0 || s.inner()%s.Groups != 0 {
			return fmt.Errorf("model: ssm.time_step_rank %d is not a multiple of ssm.group_count %d in layer %d: %w", s.Heads, s.Groups, i, ErrConfig)
		}
	}
	if l.Conv != nil {
		kinds++
	}
	if kinds > 1 {
		return fmt.Errorf("model: layer %d has %d recurrent mixers, want one at most: %w", i, kinds, ErrConfig)
	}
	return nil
}
