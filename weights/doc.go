// Package weights opens models: GGUF files (one, or split in parts) and Hugging Face folders with safetensors, all presented
// under GGUF's key and tensor names.
//
// Opening is lazy: only headers are read; a tensor's bytes are mapped, and scanned for NaN and Inf at their first use. All
// formats are treated as hostile (see packages gguf, safetensors, hf). Package weights checks what holds for every model
// whatever its architecture: that it names one, that its layers are all there, that its vocabulary and embedding agree. What
// an architecture needs beyond that is package model's business.
//
// Concurrency: a Model may be read from many goroutines; Close must come after the last use of any of its tensors' bytes.
package weights
