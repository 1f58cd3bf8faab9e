// Package vfs is access to files as a value: the system's own (OS), in memory (Mem), with seeded faults and a log (Faulty);
// and engines that run many operations of one file at once.
//
// It owns FS and File, O_DIRECT and its alignment, preallocation, locks between processes, page-aligned memory
// (AlignedBytes), and Engine: io_uring (package uring) where the kernel allows it, threads otherwise. It never knows what the
// bytes mean, never retries a failed operation and never falls back without saying so (Engine.Name, NewEngine's notice,
// File.Alignment).
//
// Units: offsets, sizes and alignments in bytes. Files and engines are safe for concurrent use.
package vfs
