// Package convert writes GGUF files: models in another element type, models of Hugging Face folders, models with the KV cache
// of larger ones (Widen), and models of random weights in any shape.
//
// Everything streams. A tensor passes in panels of rows that are dequantised, reordered and quantised by several goroutines
// and written in order; panels of a mapped file leave resident memory once they are done, so that memory stays below 1 GiB
// whatever the model (a tensor that package hf computes is whole in memory while it is written; stacked experts come one by
// one).
// The file appears under its name only when it is complete: it is written beside it and renamed.
//
// A written file follows llama.cpp's conventions: q and k rows of the llama family are permuted to interleaved rotary pairs
// (in memory they are not: terrace.rope.layout), vectors and norms are F32, the vocabulary has as many tokens as the
// embedding has rows. It never changes its source.
//
// Concurrency: a call uses GOMAXPROCS goroutines and returns when they are done; Progress is called from one goroutine.
package convert
