// Package hf shows a Hugging Face model folder (config.json with model.safetensors, or shards with an index) as what
// llama.cpp's convert_hf_to_gguf would have written: metadata under GGUF's key names and tensors under GGUF's tensor names,
// in a gguf.Meta and gguf.Tensors, so that the layers above know one vocabulary.
//
// It owns the meaning of config.json: defaults of each family are those of transformers 5.2 (a key that is absent has the
// value that Hugging Face would use), classic keys and the transformers-5 style (rope_parameters, dtype) are both read. It
// never computes a model, never opens pickle files, never follows auto_map, and reads nothing outside the folder (the blobs
// folder of Hugging Face's own cache layout aside).
//
// Tensors keep their bytes where they lie (mapped, unchanged) except these, computed when first read:
//   - one-dimensional tensors (norm weights, biases) are widened to F32, as GGUF files have them; Gemma's norm weights get
//     their +1 there;
//   - GPT-2's Conv1D weights are transposed to [out, in];
//   - the experts of a layer are stacked to [experts, rows, cols]; packed ones are taken apart, and MXFP4 blocks written in GGUF's order;
//   - the matrices of quantised checkpoints (storage.go: FP8, compressed-tensors, AWQ, GPTQ) are written in the blocks that hold their
//     values, one matrix at a time;
//   - projections of Falcon-H1 are multiplied by their factors, in F32; decays are −e^A_log, latent keys' projections are turned a head;
//   - rope_freqs.weight (llama3 scaling, proportional rotation) and rope_factors_{long,short}.weight (longrope) are computed from the config.
//
// What GGUF cannot say is a key of ours:
//
//	terrace.rope.layout               "neox" where GGUF files of the architecture have permuted q and k rows
//	                                  (gguf.PermutesRotary) and this view has not: permute and drop the key to write GGUF
//	terrace.rope.layers               int list, 1 = the layer rotates (smollm3)
//	terrace.rope.scaling.type         "dynamic", with .factor and .original_context_length
//	terrace.rope.scaling.attention_factor   yarn's final factor on cos and sin
//	terrace.rope.scaling.truncate     false: yarn's correction range is not rounded
//	terrace.activation                silu, gelu_tanh, gelu or relu, where it is not the architecture's own
//	terrace.rope.bases                float list, the base of each layer's rotation, 0 = none (granite_swa)
//	terrace.swiglu.{alpha,limit}      of a clamped SwiGLU (gpt-oss)
//	terrace.router.group_best         best experts whose scores make that of their group, where it is not the architecture's own (mistral4)
//	terrace.router.{jitter,least,softcap,on_input}  of routers: sparse mixer's jitter (phimoe), least sum of weights (ernie4_5-moe), cap on
//	                                  logits, weights on what goes in (laguna)
//	terrace.attention.{chunk,chunked,norm,temperature_scale,temperature_length}  chunks and the layers that have them, norms of q and k without
//	                                  weight, temperature of the layers that do not rotate (llama4)
//	terrace.delta.order               grouped: value head j of gated DeltaNet uses key head ⌊j·keys/values⌋ (qwen35, whose GGUF files have "modulo")
//	terrace.ssm.norm_before_gate      the norm of a Mamba-2 mixer stands before its gate (falcon_h1)
//	terrace.kda.heads                 heads of DeltaNet layers, where attention has others (kimi_linear)
//	terrace.ssm.{dt_min,dt_max}       bounds of Mamba-2's step
//	terrace.tie_word_embeddings       the head is the embedding; output.weight is then absent
//	terrace.moe.layers                int list, 1 = mixture of experts, where dense layers are mixed in (qwen3moe)
//	terrace.attention.layer_scale     true: scores of layer i are divided by i+1 (GPT-2)
//	terrace.qwen.{seq_length,use_dynamic_ntk,use_logn_attn}  Qwen v1's flags
//	terrace.position_offset           row of position 0 in position_embd (OPT: 2)
//	terrace.norm_after                norms stand after the residual sums (OPT-350m)
//	terrace.no_final_norm             no norm before the head
//	terrace.max_tokens                tokens of a text that an encoder takes, where fewer than it has positions (bert)
//	terrace.embedding_in_length       width of token_embd where project_in/project_out stand around the decoder (OPT-350m)
//
// Where no period says which layers have the sliding window, ARCH.attention.sliding_window_pattern is an int list with 1 for
// those that do.
//
// OPT has no architecture in llama.cpp; it appears as "opt" under the same key and tensor names.
//
// Everything read is validated before use: JSON is decoded strictly (no duplicate key, depth and size limits, valid UTF-8),
// every figure has a range, every tensor's shape must be what the config says. Errors wrap the sentinels in errors.go and
// name file, key or tensor.
//
// Concurrency: Open may be called from many goroutines; what it returns follows gguf's rules.
package hf
