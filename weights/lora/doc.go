// Package lora reads LoRA adapters and merges them into a model's weights.
//
// It owns the reading of adapters, in the two forms that they are shared in: a folder of Hugging Face's PEFT library
// (adapter_config.json beside adapter_model.safetensors; the folder or the file may be named) and llama.cpp's GGUF
// (adapter.type "lora"), and the arithmetic W + scale·(alpha/r)·B·A, A [r, in], B [out, r] (alpha/√r with use_rslora).
//
// Invariants:
//  1. A merged tensor is computed at its first use, row by row in float32, and dropped like one that was mapped.
//  2. Merged tensors are F32 where the model's is F32, else F16: what an adapter adds would be lost in 4 bits. Values that
//     F16 does not hold are an error at the first use (gguf.ErrNotFinite).
//  3. Every tensor of an adapter changes one of the model, or opening is an error that names it: DoRA, biases, embeddings,
//     modules_to_save and alpha_pattern are refused.
//  4. GGUF files of some architectures keep the rows of q and k of each head in another order (pairs of rotated dimensions side
//     by side) than Hugging Face: rows of B are put into the order of the model that they are added to.
package lora
