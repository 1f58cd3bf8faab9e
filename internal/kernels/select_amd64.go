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
			selecting = selectOps{avx512.AtLeast, avx512.Below, avx512.Reaching, avx512.Hide}
		case path == isaAVX2:
			selecting = selectOps{atLeast: avx2.AtLeast, below: avx2.Below, reaching: avx2.Reaching}
		default:
			selecting = selectOps{}
		}
	})
}
