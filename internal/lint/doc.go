// Package lint holds the rules of this repository that no standard tool checks; its test runs them, so that `go test ./...`
// takes them in. gofmt, go vet and staticcheck are run by `make lint` and by CI, as the tools they are.
//
// It owns: the import layers of ARCHITECTURE.md, package comments, comments of exported names, who may print, read the
// environment, start cgo or use unsafe, TODOs with issue numbers, the length of functions and files (a ratchet:
// testdata/long.txt may only shrink), and that nothing about one machine is written into the project. It also measures the
// shape of the inner packages (Measure). It never changes a file. Every finding says what to do.
//
// The rules read syntax only (no types), so that the whole repository takes about half a second. Not safe for concurrent
// use of one Repo.
package lint
