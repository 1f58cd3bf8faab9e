// Package storage owns files of records: whatever Terrace keeps of KV on a disk lies in a Folder of it.
//
//   - Folder: a directory, who may change it (Lock), its files opened with O_DIRECT where the file system has it, room reserved
//     in one of them (Reserve), and a header with a version and a checksum at its beginning (WriteHeader, CheckHeader, Claim).
//   - Records: values of any length under names, each in a file of its own that is there whole or not at all.
//   - Staging: memory for transfers whose own memory cannot be used directly.
//   - Attempts: the one rule of what is tried again.
//
// It does not know what the bytes mean, keeps no account of a capacity beyond a reserved file's, and takes no lock by itself. A
// value's bytes are checked by whoever reads it, but for its length.
//
// After a loss of power, or of the process: a value whose Put returned is there; one whose Put did not return is there whole or
// not at all, and what is left of it is removed by Recover. A header is written and read back before anything else of its file.
//
// Units: bytes. Memory from Aligned begins at a multiple of PageBytes and moves without a copy.
//
// Concurrency: all types may be used by many goroutines at once; changes to one folder by several processes take turns by Lock.
package storage
