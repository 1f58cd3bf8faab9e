// Package terrace runs language models on this machine, with a KV cache on terraces: host memory, an SSD, a drive that scores keys.
// It is the Go API of the engine that the command infer is made of: no cgo, no process beside yours.
//
//	m, err := terrace.Open(ctx, "smollm2:135m", terrace.Options{})
//	if err != nil { … }
//	defer m.Close()
//	for piece, err := range m.Chat(ctx, []terrace.Message{{Role: "user", Content: "Why is the sky blue?"}}, terrace.Settings{MaxTokens: 100}) {
//		if err != nil { … }
//		fmt.Print(piece.Text)
//	}
//
// A Model generates (Generate, Chat), keeps a conversation or a document in a Session, and is an HTTP server (Handler) whose APIs
// clients of OpenAI know; all of them at the same time, in one batch. An Encoder makes embeddings. A File is a model that is open
// but runs nothing: its parts alone, an Engine for programs that drive sessions themselves, and what fits into memory (Fit). Text depends on the model, the
// prompt, the Settings and the policy alone: not on threads, on tiers, nor on what else runs (docs/server.md).
//
// Concurrency: every method may be called from any goroutine, but those of one Session from one at a time. A loop over an answer
// may call anything, and may be left at any time.
//
// # Versions
//
// From the first tag on this package follows semantic versioning (https://semver.org): within a major version no exported name of
// package terrace is removed or changes what it means, zero values of new fields mean what was done before, and errors keep their
// sentinels. What may change in a minor version: names that are added, texts of errors, and speed. Generated text may change where
// a fault in the arithmetic is mended; CHANGELOG.md says so. Other packages of the module promise nothing, but that what this one's
// methods return keeps working. While the major version is 0, a minor version may break, and CHANGELOG.md says how to follow.
package terrace
