//go:build !linux && amd64 && !purego

package kernels

// allowTiles is false where nobody has tried how the system hands out tile state.
func allowTiles() bool { return false }
