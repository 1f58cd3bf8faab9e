//go:build amd64 && !purego

package kernels

import "terrace/internal/kernels/amd64/avx2"

func init() {
	onSelect(func(path isa) {
		quantising = quantiseOps{}
		if path >= isaAVX2 {
			quantising = quantiseOps{one: avx2.CodesOne, each: avx2.CodesEach}
		}
	})
}
