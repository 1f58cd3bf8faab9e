// Package trace records what each resource does when, as a timeline that Perfetto and chrome://tracing open.
//
// It owns Recorder: spans on one row a resource (Row), or on a line for each of its units, byte counters, the JSON they are written as, and each row's busy
// time and bytes; Story, the spans of one request of a server. It never knows what is computed or moved, opens no file and
// prints nothing.
//
// A nil *Recorder records nothing and costs a comparison, so code calls it without asking whether tracing is on.
// Times are nanoseconds of the clock handed to New; in the file they are microseconds with three decimals. Memory is
// constant: full buffers are written as they fill. Spans of one row must not overlap each other unless they nest: a
// resource that does several things at once records its busy periods. Safe for concurrent use.
package trace
