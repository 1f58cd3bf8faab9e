package mapped

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"
)

// Guard runs fn in the calling goroutine; a fault on a page of an open File, as reading one that was cut since gives it,
// becomes an error that wraps ErrChanged. Other faults and panics go on. Goroutines that fn starts are not covered.
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
			if !inMapping(r.Addr()) {
				panic(r) // a bug, not a file
			}
			err = fmt.Errorf("weights: %w: reading it failed at address %#x (the file was cut, or its disk cannot be read)", ErrChanged, r.Addr())
		default:
			panic(r)
		}
	}()
	return fn()
}

// mappings are the address ranges of all open Files, so that Forget can tell mapped bytes from memory of the program.
var mappings struct {
	sync.Mutex
	ranges map[uintptr]uintptr // start → end
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func remember(mapping []byte) {
	mappings.Lock()
	defer mappings.Unlock()
	if mappings.ranges == nil {
		mappings.ranges = map[uintptr]uintptr{}
	}
	mappings.ranges[addressOf(mapping)] = addressOf(mapping) + uintptr(len(mapping))
}

func unremember(mapping []byte) {
	mappings.Lock()
	defer mappings.Unlock()
	delete(mappings.ranges, addressOf(mapping))
}

// Holds reports whether b lies in an open File.
func Holds(b []byte) bool {
	start := addressOf(b)
	mappings.Lock()
	defer mappings.Unlock()
	for from, to := range mappings.ranges {
		if from <= start && start+uintptr(len(b)) <= to {
			return true
		}
	}
	return false
}

// inMapping reports whether an address lies in an open File.
func inMapping(address uintptr) bool {
	mappings.Lock()
	defer mappings.Unlock()
	for from, to := range mappings.ranges {
		if from <= address && address < to {
			return true
		}
	}
	return false
}

// Forget tells the system that the pages of b are not needed soon: if b lies in an open File, the whole pages inside it leave
// this process's resident memory and are read again from the file when touched. Other memory is left alone.
func Forget(b []byte) {
	if len(b) == 0 || !Holds(b) {
		return
	}
	page := os.Getpagesize()
	skip := int(-addressOf(b) % uintptr(page))
	if len(b) < skip+page {
		return
	}
	inner := b[skip:]
	forget(inner[:len(inner)/page*page])
}
