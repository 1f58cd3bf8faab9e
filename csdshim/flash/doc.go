// Package flash is the storage of a drive: NAND flash in a file, and above it a translation layer that knows groups of tokens
// (InstInfer's flash layout).
//
// What it owns: the geometry (channels, dies, pages, erase blocks), where each group of tokens lies, its checksums,
// erasing and garbage collection, and the journal from which all of it is recovered. What it never does: know what the
// bytes of a group mean, charge modelled time, open files except through vfs.FS, or retry anything.
//
// Layout. A folder holds flash.img (the pages, sparse), journal (the mapping), geometry.toml and lock. The map is
// (sequence, layer, group) → pages, each with its CRC-32C. Its lists are sparse: a large group number costs no more memory than
// a small one. Consecutive pages of a group, and consecutive groups, go to consecutive channels, and on a channel to its dies
// and planes in turn while most blocks are free, so that reading one layer uses all of them. Each sequence fills erase blocks of its own, so that a finished sequence leaves whole blocks invalid and
// collecting them copies nothing. Pages are never written twice without an erase between. Where blocks are scarce sequences
// share one, and collection copies the live pages of the emptiest block.
//
// Keys and values that a drive attends to (KVShape; InstInfer, arXiv 2409.04992, Sec. IV-C) lie page by page and head by head, in
// two mapping tables: token pages of keys and of values, and a second copy of the keys by dimension, in blocks of tokens. A
// head's consecutive pages go to consecutive channels, heads begin on different ones, and what is written together fills a
// sequence's own blocks. Tokens wait in the group buffer, the drive's memory, until their group is full; where it is full a
// group is written early and completed later (a read and a second write). The embedding copy is built when a block of tokens is
// complete, from the token pages: it needs no buffer of its own. What waits survives the process through the journal, as a
// drive's capacitors would keep it; a loss of power loses it.
//
// Promises, each with a test:
//  1. What Put has returned for is read back exactly, also after the process was killed, or its checksum fails. The
//     checksum covers page, key and version, so that a whole page in a wrong place fails too.
//  2. Put makes all groups of a call visible, or none: data are synced, then the journal, then the index changes.
//  3. Live pages never exceed the capacity: ErrFull with both numbers.
//  4. After a failed sync nothing is written any more (ErrFailed): the kernel may have dropped what it could not write.
//  5. A torn end of the journal is cut off; damage before its end is ErrCorrupt, never a silent loss.
//  6. One process a folder: ErrLocked names the holder.
//
// Pages are written by calls and read where the system shows the image as memory (vfs.Mapper), else by calls. A fault in that memory
// is answered by calls too, whose error says what is wrong with the image.
//
// Concurrency: a Store may be used by many goroutines. Locks are taken in the order commit, io, mu: commit orders the
// journal, io keeps pages from being erased while they are read, mu guards index and blocks.
package flash
