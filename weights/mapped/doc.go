// Package mapped holds model files in memory by mapping them: read-only, without reading what nobody asks for.
//
// It owns the way a file of unknown origin is opened (regular files only, never waiting for the writer of a pipe), the check
// that a file is still the one that was mapped, and Guard, which turns a fault on a mapped page (the file was cut or its disk
// failed) into an error instead of the end of the process. It never interprets a byte.
//
// Concurrency: a File's bytes may be read from many goroutines; Close must come after the last read.
package mapped
