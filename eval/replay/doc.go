// Package replay measures what placements of kept contexts cost and save: it replays arrivals of questions about contexts against
// an engine with a store of contexts, once for each placement (EvicPress, section 6).
//
// It owns the trace and context files, the profiles' file and the loop over arrivals. engine/shelf profiles contexts and carries out what
// a policy.Layout decides; nothing is written but to the store that is given.
//
// Life of a request. It arrives, and waits while another is served. Its context is found on the shelf (whole: the text is that
// of computing it, to the letter; or compressed) or computed; the question is read behind it; the answer is greedy. Then, off
// the critical path, the placement is told, and the shelf moves and compresses what the placement says, while nobody waits.
//
// Quality is how like an answer is to that from the whole KV: the cosine of sentence embeddings, or token F1 where there is no
// encoder; 1 for the same text. Times are those of requests, from arrival to first token (TTFT), waiting included; they are
// labelled modelled where a tier's reads are held to a rate.
//
// Units: bytes, tokens, seconds in files, time.Duration in code; keep is the share of tokens kept, above 0 to 1.
//
// Concurrency: one replay at a time on an engine; nothing here is safe for concurrent use.
package replay
