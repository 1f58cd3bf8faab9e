//go:build !race

package kvmanager

// raceDetector says that the race detector is on.
const raceDetector = false
