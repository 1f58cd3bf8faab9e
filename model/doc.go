// Package model turns a model file into something that computes: one configuration type, one file an architecture that
// fills it, the Backend seam, the native backend on internal/kernels, and the sampler.
//
// An architecture is data, not code: its file maps metadata and tensor names to a Config and Params, and every backend
// (native here, gorgonia and XLA elsewhere) interprets the same description. Shapes: n rows (tokens of one pass), D hidden,
// H query heads, G key/value heads, dk and dv their widths, V vocabulary; activations are row-major float32.
//
// Layers are described one by one (LayerConfig): attention (heads, widths, window, sinks, gate, whose KV is read, latent), or a recurrent
// mixer (Delta, SSM, Conv), or neither; Cache is what they keep. Mixers are data too: a backend that runs recurrent ones implements
// Recurrent, others refuse such models by name (Model.OnlyPlain, with what a backend declares). A recurrent mixer's state is float32 and the caller's: Mix reads one
// copy and writes another. Rows go through it one after another in every phase, so state does not depend on how rows were cut into
// passes.
//
// A row between layers is Config.RowWidth numbers: the residual, or several streams of it, and the id of its token where layers are given
// something of it. Whoever picks, copies or keeps rows keeps them whole and needs to know no more.
//
// The package never owns KV memory (attention reads views that the caller hands in), knows no policy and does no I/O of
// its own beyond reading weights through package weights.
//
// Concurrency: a Backend serves one pass at a time; the caller serialises. Tensors it returns are its own scratch and hold
// until the next call of the same method.
package model
