//go:build linux && amd64 && !purego

package kernels

import "syscall"

// allowTiles asks the kernel for the AMX tile state of this process (arch_prctl ARCH_REQ_XCOMP_PERM of feature 18,
// XTILEDATA); refusal means that no thread may touch a tile.
func allowTiles() bool {
	const archReqXCompPerm, xfeatureTileData = 0x1023, 18
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archReqXCompPerm, xfeatureTileData, 0)
	return errno == 0
}
