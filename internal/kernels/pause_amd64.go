//go:build amd64 && !purego

package kernels

import "terrace/internal/kernels/amd64/avx2"

// pause gives a spinning core a moment: about 100 ns or less. PAUSE itself needs no AVX2.
func pause() { avx2.Pause(2) }
