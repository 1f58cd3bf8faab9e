//go:build lean

package main

// A lean build has the native backend only.
// backendsMissing tells of the build.
const backendsMissing = " (this binary was built with -tags lean)"

var backendErrors []error
