//go:build amd64 && !purego

package kernels

import (
	"terrace/internal/kernels/amd64/avx2"
	"terrace/internal/kernels/amd64/avx512"
)

func init() {
	onSelect(func(path isa) {
		put, turnKeys, copyRows, copyOut = putOps{}, [2]func(*byte, [][]byte, int){}, nil, nil
		if path >= isaAVX2 {
			turnKeys = [2]func(*byte, [][]byte, int){avx2.TurnKeys2, avx2.TurnKeys4}
			copyRows, copyOut = avx2.CopyRows, avx2.CopyOut
			put.keys = [7]func(*byte, *float32, int, int){avx2.PutKeysF32, avx2.PutKeysF16, avx2.PutKeysBF16, avx2.PutKeysI8, avx2.PutKeysI4}
			put.key = [3]func(*byte, *float32, int){avx2.PutKeyF32, avx2.PutKeyF16, avx2.PutKeyBF16}
			put.value = [7]func(*byte, *float32, int){avx2.PutValueF32, avx2.PutValueF16, avx2.PutValueBF16, avx2.PutValueI8, avx2.PutValueI4, avx2.PutValueI3, avx2.PutValueI2}
			put.groups = [2]func(*byte, *float32, int, int){avx2.PutKeyGroupI3, avx2.PutKeyGroupI2}
		}
		if path >= isaAVX512 {
			turnKeys = [2]func(*byte, [][]byte, int){avx512.TurnKeys2, avx512.TurnKeys4}
			copyRows, copyOut = avx512.CopyRows, avx512.CopyOut
			put.keys = [7]func(*byte, *float32, int, int){avx512.PutKeysF32, avx512.PutKeysF16, avx512.PutKeysBF16, avx2.PutKeysI8, avx2.PutKeysI4}
			put.key = [3]func(*byte, *float32, int){avx512.PutKeyF32, avx512.PutKeyF16, avx512.PutKeyBF16}
			put.value = [7]func(*byte, *float32, int){avx512.PutValueF32, avx512.PutValueF16, avx512.PutValueBF16, avx2.PutValueI8, avx2.PutValueI4, avx2.PutValueI3, avx2.PutValueI2}
		}
	})
}
