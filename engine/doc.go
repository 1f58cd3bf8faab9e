// Package engine runs sessions, each under a policy of its own: prompts, decode steps in batches, and generation with sampling
// and stop strings. It is the only place where a model meets what is read of the KV cache (retrieval).
//
// Calls go down this list of files: generate.go (a request as a step function), speculate.go (tokens
// that are guessed and read ahead; draft guesses them), prefix.go (KV from before; prefixcache has it), fork.go, decompose.go (what a policy wants to
// know of the model), fit.go, use.go (accounts), prune.go and mask.go (what a prompt leaves out), layer.go (the seven verbs of a
// layer), revive.go (what was pruned comes back), reading.go (prompts in parts), prompt.go (in chunks and layer by layer),
// reconstruct.go (a prompt is read a second time), session.go (one text), step.go (a token of each of a batch), recover.go (a text that a tier has lost is read again), longrope.go (one whose length changes its rotary frequencies), device.go (a backend with memory
// of its own), pass.go (rows that share a step), engine.go, tiers.go, options.go, errors.go. A newcomer reads session.go, pass.go and layer.go first.
//
// A pass is a value: rows of any sessions in one arithmetic. runLayer takes it through a layer: Project (backend), Append,
// Select, Fetch (retrieval; the next layer is prepared meanwhile, by one call), Attend (backend), Prune, Finish (backend);
// then Logits and the sampler. Arithmetic of a row never depends on the others, and an error of one session leaves the others
// of its batch going (BatchError).
//
// Under a policy that prunes rows or masks the prompt's attention an empty session's prompt passes layer by layer (wholePrompt):
// hidden of all rows that are alive is kept, 4·RowWidth bytes a row, and each layer takes them in blocks, through the same
// runLayer. On tiers any prompt goes so, in sections as long as host memory has room for hidden. While decoding, what was pruned may come back (revival): its rows were kept, and go through the layers they missed once.
//
// How a prompt is cut into chunks changes no bit, except under policies that add up something over the prompt's rows:
// there it stays below 1e-4 nats of the next token's distribution (TestChunksChangeNothing).
//
// It knows nothing of HTTP, of result files, or of drives. Token ids are int32 on the way through passes, int elsewhere; times
// are time.Duration and named; bytes are int64.
//
// Concurrency: an Engine serves one call at a time; callers serialise. Cancelling the context stops between chunks of a
// prefill and between decode steps.
package engine
