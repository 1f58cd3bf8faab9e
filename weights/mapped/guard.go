package mapped

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Guard runs fn in the calling goroutine; a fault on a memory page, as reading a mapped file that was cut since gives one,
// becomes an error that wraps ErrChanged. Other panics go on. Goroutines that fn starts are not covered.
func Guard(fn func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = fmt.Errorf("weights: %w: memory fault at %#x (%s)", ErrChanged, r.Addr(), r.Error())
		default:
			panic(r)
		}
	}()
	return fn()
}

// Forget tells the system that the whole pages inside b, a slice of a mapped file's bytes, are not needed soon: they leave
// this process's resident memory and are read again from the file when touched.
func Forget(b []byte) {
	if len(b) == 0 {
		return
	}
	page := uintptr(os.Getpagesize())
	start := uintptr(unsafe.Pointer(&b[0]))
	skip := (page - start%page) % page
	if uintptr(len(b)) < skip+page {
		return
	}
	inner := b[skip:]
	inner = inner[:uintptr(len(inner))/page*page]
	_ = unix.Madvise(inner, unix.MADV_DONTNEED) // advice only
}
