//go:build !race

package engine

// raceDetector says that the race detector is on.
const raceDetector = false
