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
// What there is, each with an example below:
//
//   - answers as they come: [Model.Generate], [Model.Chat]; a context ends them, or leaving the loop; [Settings] are samplers, stops and seed
//   - conversations: [Message], [Reply]; thoughts are apart from text ([Piece]), functions that the model calls are [Tool] and [Call]
//   - answers that are JSON of a schema, or of a grammar: [Schema], [Grammar], [Regex], [OneOf] ([Format])
//   - log probabilities of tokens: [Logprob]; progress of a prompt: Settings.Progress, of a download: Options.Hub
//   - documents that are read once and asked about many times, under a KV policy and on tiers: [Session]; what is kept between runs:
//     Options.Store
//   - embeddings: [Encoder]
//   - all of it as an HTTP server beside the program's own answers, in one batch: [Model.Handler]
//   - a model that is open but runs nothing: [File], for its parts, what fits into memory (Fit), and an engine whose sessions one drives
//     oneself
//   - KV policies of a program's own, by name wherever one is named: Register of package terrace/policy
//
// Text depends on the model, the prompt, the Settings and the policy alone: not on threads, on tiers, nor on what else runs. Who says
// nothing of sampling gets the model's own, here and over HTTP.
//
// Errors are compared with this package's variables by errors.Is; their text is one line that says what to do.
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
