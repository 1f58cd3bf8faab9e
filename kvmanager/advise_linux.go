package kvmanager

import "golang.org/x/sys/unix"

// adviseSmallPages keeps the kernel from making huge pages of a slab: they would keep freed 4 KiB pages resident. It is
// advice; a kernel that refuses costs memory only.
func adviseSmallPages(data []byte) { _ = unix.Madvise(data, unix.MADV_NOHUGEPAGE) }
