// Package hftest is for tests alone: a slow forward pass in float64 plain loops over metadata and tensors as package hf (or
// a GGUF file in F32, F16 or BF16) presents them. It is written from the definitions of the models, shares no code with
// package model or the kernels, and is the oracle for both: it equals Hugging Face's float32 logits on every model of the
// tiny_hf goldens to 2e-5 of the largest logit, and stands in where no golden exists (Qwen v1).
//
// It keeps no cache: every call computes the whole sequence. Nothing outside of tests may import it.
package hftest
