// Package safetensors reads and writes files in the safetensors format: an 8-byte little-endian header length, a JSON header
// that names each tensor with dtype, shape and byte range, then the bytes.
//
// The header is decoded by a strict decoder of its own: valid UTF-8, no name twice in an object, whole non-negative numbers,
// bounded depth, at most 100 MB and never more than the file. The ranges of all tensors must follow each other from 0 to the
// end of the file without hole or overlap, and each must be as long as shape and dtype say. The file is mapped; data is not
// touched until asked for. It never opens anything but the file it is given, and knows no models.
//
// Concurrency: a File may be read from many goroutines; Close must come after the last use of its bytes.
package safetensors
