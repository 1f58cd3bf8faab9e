// Package view shows files as memory, and makes memory that two processes have.
//
// It owns mappings and what becomes of a fault in one: an error inside Guard. It never writes to a file that it was given for
// reading, and never knows what the bytes mean. Linux only: elsewhere all of it is errors.ErrUnsupported.
//
// Concurrency: the bytes of a View may be used by many goroutines, until Close.
package view

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"
)

// ErrFault: bytes that are not there (the file was cut), or that its disk cannot give.
var ErrFault = errors.New("fault in a mapped file")

// View is the beginning of a file as memory. What is written to the file is seen at once, also past the end that it had.
type View struct{ bytes []byte }

// At is n bytes from off on. Bytes past the file's end, or of a disk that fails, fault when they are touched: see Guard.
func (v *View) At(off int64, n int) []byte { return v.bytes[off : off+int64(n) : off+int64(n)] }

// Guard runs fn in the calling goroutine. A fault on the view's bytes becomes an error that wraps ErrFault; other panics go on.
func (v *View) Guard(fn func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			from := uintptr(unsafe.Pointer(unsafe.SliceData(v.bytes)))
			if at := r.Addr(); at < from || at >= from+uintptr(len(v.bytes)) {
				panic(r) // a bug, not a file
			}
			err = fmt.Errorf("reading at %d: %w", r.Addr()-from, ErrFault)
		default:
			panic(r)
		}
	}()
	return fn()
}
