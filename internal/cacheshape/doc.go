// Package cacheshape says what each layer of a model keeps of a text, and whose keys and values it reads. It is the one
// description that the model, policies, the cache, the tiers and the drive's protocol share, so that layers may differ.
//
// A layer has one of four faces: it keeps keys and values and reads them (Owner is itself); it reads those of an earlier layer
// (Owner is that layer, KV is zero); it keeps state of a fixed size (State); it keeps nothing. A layer may keep both KV and state.
//
// Shapes: widths are numbers, not bytes; State is bytes.
package cacheshape
