//go:build arm64 && !purego

package kernels

import "terrace/internal/kernels/arm64/neon"

func init() {
	onSelect(func(path isa) {
		put = putOps{}
		if path >= isaNEON {
			put = putOps{
				keys:  [7]func(*byte, *float32, int, int){neon.PutKeysF32, neon.PutKeysF16, neon.PutKeysBF16},
				key:   [3]func(*byte, *float32, int){neon.PutKeyF32, neon.PutKeyF16, neon.PutKeyBF16},
				value: [7]func(*byte, *float32, int){neon.PutValueF32, neon.PutValueF16, neon.PutValueBF16},
			}
		}
	})
}
