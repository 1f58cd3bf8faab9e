// Package clock makes time a parameter: the machine's own, or one that a test or a simulation moves.
//
// It owns Clock and its six implementations. Real is the machine's monotonic clock. Virtual stands still until somebody
// advances it; sleepers wake in the order of their times. Jumping advances itself: a sleeper returns at once, and the clock
// shows the time at which it would have woken. Events runs one goroutine at a time and moves when all of them wait: a simulation.
// Skipping is the machine's clock without waiting; Metered is the machine's, and counts the work that it is told of.
// Spend tells such a clock of work on the host's cores that would take time.
// Go and Wait are how code that may run on it starts goroutines and waits for them; on the others they are the language's own.
//
// Units: times are durations since the clock's own start, so that no code can depend on the date. Figures taken from Real, Metered and
// Skipping are measured, those from the others are modelled; Clock.Modelled says which. A clock never knows who waits or why.
//
// Concurrency: every clock may be used by many goroutines at once.
package clock
