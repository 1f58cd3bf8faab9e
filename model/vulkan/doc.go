// Package vulkan is the backend seam on any GPU with Vulkan 1.2, without cgo (internal/vulkan, -tags gpu).
//
// On the device: all weights, in their own type where weights.go lists it, else in float32; activations, from the embedding to the
// logits, until somebody reads them; copies of keys and values in tiles of 16 tokens (mirror.go). Computed there: look-ups, norms,
// rotations, products, attention over tiles (windows, selected tokens, sums of weights) and its gates, recurrent mixers (short convolutions,
// gated DeltaNet with decays by head or channel, Mamba-2), activations, routers and experts, the likeliest token.
//
// On the host: rotary tables, pages (the truth, of which the device has copies by version), policies, sampling but for argmax. A state of a
// recurrent layer belongs to the host too; the newest may be on the device alone until somebody reads it (states.go).
//
// Experts (experts.go) never wait for the host: experts.comp chooses those of each row, group.comp sorts the pairs of a row and an expert by
// expert, the kernels of products multiply the rows of each, join.comp sums. A layer has 7 launches for its experts in a step of one row,
// 8 in other passes, 4 or 5 more for a network beside them, and no round trip; a step reads the weights of the experts it chose. Where the
// host has them (place.go, BackendOptions.HostExperts), or the attention alone, a layer has one round trip of its rows.
//
// What it never does: layers that have whatever else Model.Beyond names, which the native backend computes beside it
// (split.go, BackendOptions.DeviceLayers); sparse prefill masks; attention whose outputs are mixed with estimates. It refuses them by name.
// Products are float32, without cooperative matrices.
//
// Read backend.go, then place.go, split.go, blocks.go (a layer), experts.go, mix.go and states.go (recurrent ones), attend.go, mass.go, mirror.go; recorder.go
// records kernels and transfers into one command buffer, which is submitted when the host reads something: once a layer, for its keys and
// values; a recurrent layer has nothing to read. aside.go has the next layer's tiles go up meanwhile, on a second queue where there is one.
// memory.go has slots of results and cuts slabs, kernels.go builds pipelines. Kernels are GLSL in shaders/, embedded as SPIR-V (spirv/, go
// generate), a type of weights or a width being a specialisation constant.
//
// Invariants. 1. A row's result depends on the pass's Phase, never on the rows beside it: Decode has one order of sums (steps.comp),
// the other phases another (tiles.comp). 2. Commands run in the order they were recorded; memory that is freed may be given out
// again at once. 3. Staged bytes hold until the next submission.
//
// Concurrency: one pass at a time; tensors of Project may be read by another goroutine meanwhile.
package vulkan
