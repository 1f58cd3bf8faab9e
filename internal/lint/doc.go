// Package lint holds the rules of this repository that a compiler does not check; its test runs them, so that
// `go test ./...` is the linter too.
//
// It owns: formatting, the import layers of ARCHITECTURE.md, package comments, who may print, read the environment, start
// cgo or use unsafe, TODOs with issue numbers, the length of functions and files (a ratchet: testdata/long.txt may only
// shrink), and that nothing about one machine is written into the project. go vet and staticcheck run beside them as the
// tools they are. It never changes a file. Every finding says what to do.
//
// The rules read syntax only (no types), so that the whole repository takes well under a second. Not safe for concurrent
// use of one Repo.
package lint
