//go:build race

package attention

// raceDetector says that the race detector is on.
const raceDetector = true
