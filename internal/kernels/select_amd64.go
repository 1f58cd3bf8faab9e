//go:build amd64 && !purego

package kernels

import "terrace/internal/kernels/amd64/avx512"

func init() {
	onSelect(func(path isa) {
		selecting = selectOps{}
		if path >= isaAVX512 {
			selecting = selectOps{avx512.AtLeast, avx512.Below, avx512.Reaching, avx512.Hide}
		}
	})
}
