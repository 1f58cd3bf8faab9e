// Package vfs is access to files as a value: the operating system's (OS), in memory (Mem), and either of them with seeded faults
// and a log (Faulty); and engines that run many operations of one file at once.
//
// It owns FS and File, O_DIRECT and its alignment, preallocation, locks between processes, page-aligned memory
// (AlignedBytes), and Engine: io_uring (package uring) where the kernel allows it, threads otherwise. It never knows what the
// bytes mean. It never retries an operation that failed; ReadFull and WriteFull only continue one that the kernel cut short. It
// never falls back without saying so (Engine.Name, NewEngine's notice, File.Alignment).
//
// Power loss: a Mem from NewCrashMem keeps apart what was synced and what was not. Crash leaves of each write that was not
// synced all, nothing or a beginning, drawn by a seed. What a failed Sync did not write is lost, even if a later Sync succeeds.
//
// A Mapper is a file that can be read as memory (package view, Linux).
//
// Units: offsets, sizes and alignments in bytes.
//
// Concurrency: files and engines may be used by many goroutines at once. The fields of Faults are set while nothing is under way.
package vfs
