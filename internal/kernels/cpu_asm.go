//go:build (amd64 || arm64) && !purego

package kernels

// onSelect calls f with the selected path now and after every later Select: the way a file of kernels sets its
// function variables.
func onSelect(f func(isa)) {
	listeners = append(listeners, f)
	f(current)
}
