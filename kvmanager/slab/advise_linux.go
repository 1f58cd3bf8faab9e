package slab

import "golang.org/x/sys/unix"

// adviseSmallPages keeps the kernel from making huge pages of a slab again once parts of it were given back: they would
// become resident again. It is advice; a kernel that refuses costs memory only.
func adviseSmallPages(data []byte) { _ = unix.Madvise(data, unix.MADV_NOHUGEPAGE) }
