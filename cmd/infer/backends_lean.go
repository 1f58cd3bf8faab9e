//go:build lean

package main

// A lean build has the native backend only.
// backendsMissing tells of the build.
const backendsMissing = " (this binary was built with -tags lean)"

var backendErrors []error

// noVulkan: a lean build does not know the name.
func noVulkan(string) error { return nil }
