// Package wire is the protocol between the engine and a computational storage drive: frames over a Unix socket.
//
// What it owns: the frame ([Header]: fixed layout, length capped, two checksums), one struct a message with its bytes,
// and the rules of a conversation. What it never does: open sockets, wait, or know what a score means.
//
// A conversation: the client sends Hello, the drive answers Welcome (profile, geometry, capacity) or Error. After that
// the client sends requests, each with an id of its own choice above 0; requests run side by side, and replies carry the
// id. A request ends with exactly one Done or Error; before it there may be Scores or Data frames. Cancel asks to end a
// request early; it still ends with Done or Error, or with nothing when it had ended already.
//
// Several questions in one message: the sequences of a batch ask about a layer at the same time. ScoreMany carries their questions; they
// are answered in their order, Header.At saying which a Scores frame is of, and each ends with an Answered of its own, so that one which
// fails takes no other with it. A request of a single question stays what it was.
//
// Replies in shared memory: beside the Hello frame may come the file of memory whose size cannot change (a sealed memfd), of
// Hello.ShareBytes. Where the drive takes it (Identity.Shares), Header.At of Fetch and Gather may name a place in it: the reply's bytes
// lie there when Done comes, and no Data frames do. A place is the drive's until it has answered, also where the request was cancelled.
//
// Units and shapes: numbers are little-endian; sizes are bytes, times nanoseconds. A token's position is its index in
// the sequence's cache; groups are 16 tokens of one layer, all KV heads; group g holds positions 16g to 16g+15.
//
// Score blocks: n tokens are 4n bytes, as in the paper: a 16-bit position relative to the block's base and the score in
// half precision. Nothing is lost by the half: the score of a token is defined as its exact integer sum divided by a
// power of two (the query's Shift) and rounded to half precision, on the host as on the drive, so that a block carries
// exactly the number that the host would have computed. A block whose positions span more than 65,535 is cut.
//
// Invariants: (1) no length is believed before it was compared with what it may be, and nothing is allocated for it
// before; (2) a decoder consumes all of its bytes or fails; (3) malformed bytes give an error that wraps ErrFrame, never
// a panic.
//
// Concurrency: values are plain data; a reader or writer belongs to one goroutine.
package wire
