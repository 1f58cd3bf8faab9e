// Package clock is time as a parameter: the machine's own, or a virtual one that a simulation or a test moves.
//
// It owns Clock, Real, Virtual and Jumping. Times are durations since the clock's own start, so that no code can depend on the
// date; figures taken from a Virtual clock are modelled, from Real measured (Clock.Modelled says which). It never knows
// who waits or why. Both clocks are safe for concurrent use.
package clock
