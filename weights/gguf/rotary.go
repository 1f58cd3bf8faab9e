package gguf

import "slices"

// permuted are the architectures whose GGUF files have the rows of q and k in another order than their checkpoints (llama.cpp's
// convert_hf_to_gguf.py, LlamaModel.permute).
var permuted = []string{"llama", "granite", "granite_swa", "granitehybrid", "granitemoe", "mistral3", "smollm3"}

// PermutesRotary reports whether GGUF files of an architecture have the rows of q and k that rotate together side by side (2i, 2i+1),
// where its checkpoints have them half a head apart (i, i+d/2).
func PermutesRotary(arch string) bool { return slices.Contains(permuted, arch) }
