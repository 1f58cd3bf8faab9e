// Package serve is Terrace's HTTP server: the APIs that clients of OpenAI and Anthropic speak, on one engine that decodes the
// requests of all of them together.
//
// Calls go down this list of files: server.go (options, life), routes.go (what is served where), http.go (limits, keys, hosts,
// accounts of each request), one file an API (completions.go, chat.go, responses.go, messages.go, tokens.go, info.go), openai.go (the fields they share),
// ollama.go and llamacpp.go (the APIs of neighbours), hints.go and hinttables.go (fields of others), chattools.go, tools.go (functions that a model may call), constrain.go (what a text must be), responsereply.go, messagereply.go,
// decode.go (strict JSON in), sse.go (events out), request.go (what every API is converted to and from), talk.go (chats of this process), loop.go (the engine's
// one goroutine), sequence.go (a text in progress), logprobs.go, metrics.go, errors.go.
//
// An API is a file that converts: its JSON to a Request, and Events to its JSON. It registers its routes by addRoutes and calls
// Server.Do; it knows neither engine nor scheduler.
//
// Invariants:
//  1. One goroutine, the loop, calls the engine. Nothing that a client does makes it wait: events are appended, never sent.
//  2. A request ends by one last Event for each of its choices, or by an error; then nothing of it is left in the engine.
//  3. A request whose context ends is dropped before the next step, wherever it is: waiting, reading its prompt, decoding.
//  4. Text of a choice depends on its Request alone, bit for bit, not on who else is served.
//  5. A panic while one request is served fails that request.
//
// Units: token ids are int, times time.Duration, sizes bytes. Nothing here reads the environment or fetches a URL.
package serve
