package storage

import "errors"

var (
	// ErrFull: there is no room for what is to be written.
	ErrFull = errors.New("tier is full")
	// ErrCorrupt: bytes are not those that were written.
	ErrCorrupt = errors.New("record is corrupt")
	// ErrMissing: there is no such record.
	ErrMissing = errors.New("no such record")
	// ErrShape: a record, or a file, is not of the form that is asked for.
	ErrShape = errors.New("wrong shape")
	// ErrInUse: another process or store uses the folder.
	ErrInUse = errors.New("in use")
	// ErrReadOnly: the folder cannot be written to.
	ErrReadOnly = errors.New("read-only")
)

// Attempts is how often an operation that ended with err is begun at most: twice, because what a device or a connection says may
// pass, and once where it says what stays so.
func Attempts(err error) int {
	for _, stays := range [...]error{nil, ErrFull, ErrMissing, ErrShape, ErrInUse, ErrReadOnly} {
		if errors.Is(err, stays) {
			return 1
		}
	}
	return 2
}

// tried does what fails again as far as Attempts allows.
func tried(do func() error) (err error) {
	for made := 1; ; made++ {
		if err = do(); made >= Attempts(err) {
			return err
		}
	}
}
