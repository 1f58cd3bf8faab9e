//go:build !amd64 || purego

package kernels

// pairedBF16 says that tiles of BF16 have pairs of columns.
const pairedBF16 = false
