//go:build amd64 && !purego

package kernels

import (
	"terrace/internal/kernels/amd64/avx2"
	"terrace/internal/kernels/amd64/avx512"
)

func init() {
	onSelect(func(path isa) {
		switch {
		case path >= isaAVX512:
			states = stateOps{64, avx512.StateDot, avx512.DeltaStep, avx512.DeltaStepEach, avx512.SSMStep, avx512.Convolve}
		case path == isaAVX2:
			states = stateOps{16, avx2.StateDot, avx2.DeltaStep, avx2.DeltaStepEach, avx2.SSMStep, avx2.Convolve}
		default:
			states = stateOps{lanes: 16}
		}
	})
}
