// Package xla runs models on gomlx: as "gomlx:go" on its pure Go backend (in every binary), and, built with the tag xla
// (which needs cgo), as "xla:cpu" and "xla:cuda" on XLA through a PJRT plugin.
//
// What it owns: the programs of the Backend's calls, compiled once for each shape they are asked for; device copies of the
// weights, uploaded at their first use; and mirrors, device copies of the keys and values that views show. Layers of one
// structure share programs: weights are arguments.
//
// Launching a program costs more than a step's norms, products and copies do. A call whose result nobody reads yet leaves a pending
// program, which runs as a part of the one that needs it (joint.go): of a layer's step, writing the new token's keys and values with its attention,
// and the rest of the layer with the projections of the next. Values on the device are counted by who needs them. Prompts in bf16 go through
// a device's own attention where it has one (flash.go).
//
// What the calls hand to each other stays on the device: a returned tensor is read back when somebody asks for its values
// (model.Float32s), and goes up again only if they were written. A mirror follows its views by the versions of their pages:
// new rows are appended from Project's results, changed ones go up again, from the first one on. New tokens go to a small
// tail block first, because programs copy what they change. A decode step of one session uploads the token's id, its
// position, cosines and sines, and two numbers that say where its keys and values go; nothing that grows with the context. It
// downloads its keys and values, which the tiers below hold too, and of the logits only what is asked for: a greedy step the
// likeliest token, 8 bytes.
//
// DeviceKVBytes bounds the mirrors. Layers that do not fit are streamed: they go up while the layer before is computed
// (UploadKV), or for the call where there is no room for two, and are forgotten after it; where a policy selects, only the
// selected tokens go up. What programs need while they run is not counted. Project's k and v come down beside what follows: the
// engine reads them in another goroutine.
//
// Shapes: n rows of a pass are padded to N, the next power of two; the T tokens of a mirror to the next power of two or
// one and a quarter, a half or three quarters of one, at least 64. Padded keys get a position no query sees, padded rows a
// position that sees no key, so padding changes no result. A decode step therefore compiles nothing, but for attention and
// the joining of a tail four times while the context doubles. Counts tells.
//
// Recurrent layers (Mix): states are the caller's, in host memory; they go up with the call and come down before it ends. The gated delta
// rule takes 64 rows of each text at once, as products (delta.go). Inputs of each layer (perlayer.go): the host reads their rows of the table,
// which would fill the device. Layers that share keys and values share their owner's mirror.
//
// What it never does: know where pages come from (it reads views as attention does) or what a policy wants. Sparse prefill
// masks and LogN are model.ErrUnsupported. The Phase makes no difference: all arithmetic is float32, or, opened with
// model.BFloat16, matrices, keys, values and what they are multiplied with are rounded to 8 significant bits and summed in
// float32; norms, softmax, routers and the hidden rows stay float32.
//
// In a timeline (trace), a program's row is the device's, from its start to its end; what goes up and down has rows with
// bytes; compiling lies inside the call that needed it.
//
// Concurrency: one pass at a time, as the Backend says; transfers run beside it in goroutines of their own, one at a time in
// each direction. Programs are run by the caller of a pass alone.
package xla
