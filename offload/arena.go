package offload

import "terrace/internal/vfs"

// AlignedBytes maps n bytes of zeroed, page-aligned memory outside Go's heap, which stores read and write without a copy.
func AlignedBytes(n int) []byte { return vfs.AlignedBytes(n) }

// FreeAligned gives memory from AlignedBytes back; b must begin where it began.
func FreeAligned(b []byte) { vfs.FreeAligned(b) }
