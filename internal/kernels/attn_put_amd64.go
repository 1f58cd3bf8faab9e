//go:build amd64 && !purego

package kernels

import "terrace/internal/kernels/amd64/avx512"

func init() {
	onSelect(func(path isa) {
		put = putOps{}
		if path >= isaAVX512 {
			put.keys = [3]func(*byte, *float32, int, int){avx512.PutKeysF32, avx512.PutKeysF16, avx512.PutKeysBF16}
			put.value = [3]func(*byte, *float32, int){avx512.PutValueF32, avx512.PutValueF16, avx512.PutValueBF16}
		}
	})
}
