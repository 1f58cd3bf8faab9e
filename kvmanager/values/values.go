// Package values is the seam between stored contexts and servers that keep values under names. A client registers itself
// ([Register]); those of Valkey and S3 are in kvmanager/values/remote, which a program imports for its side effect.
package values

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var (
	// ErrMiss: there is no such value.
	ErrMiss = errors.New("not stored")
	// ErrDamaged: a value is not what was stored.
	ErrDamaged = errors.New("damaged record")
	// ErrPlace: no server can be named so, or this program has no client of its kind.
	ErrPlace = errors.New("bad store")
)

const (
	// MaxBytes is the most that a value may have.
	MaxBytes = 1 << 30
	// Parallel is how many values are asked for at a time.
	Parallel = 8
	// OpTimeout is how long an operation may take at least, slowest the rate in bytes a second that is waited for beyond it.
	OpTimeout = 2 * time.Second
	slowest   = 4 << 20
)

// OpContext bounds an operation on so many bytes.
func OpContext(ctx context.Context, bytes int64) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, OpTimeout+time.Duration(bytes)*time.Second/slowest)
}

// Value is one that is kept.
type Value struct {
	Name  string
	Bytes int64
	Used  time.Time // last read or written, as far as the server knows
}

// Server keeps values. Several goroutines may use one; an operation that does not end in time fails.
type Server interface {
	// Get returns a value, or its first most bytes where most > 0. Errors wrap ErrMiss and ErrDamaged.
	Get(ctx context.Context, name string, most int64) ([]byte, error)
	Put(ctx context.Context, name string, value []byte) error
	Delete(ctx context.Context, list []Value) error
	// There reports which of the names have a value.
	There(ctx context.Context, names []string) ([]bool, error)
	// Index lists what is there.
	Index(ctx context.Context) ([]Value, error)
	// Used notes that values were read now; where the server cannot keep that, it does nothing.
	Used(ctx context.Context, list []Value) error
	Close() error
}

// Access is what servers ask for; empty fields are not given.
type Access struct {
	User, Password       string // of Valkey
	AccessKey, SecretKey string // of S3
	Region               string
}

// Client opens a server at a place: HOST:PORT, or URL/BUCKET.
type Client func(ctx context.Context, place string, a Access) (Server, error)

var clients = map[string]Client{}

// Register makes a kind of server known, before the first [Open]: from an init function.
func Register(kind string, c Client) { clients[kind] = c }

// Open connects to a server. Errors wrap ErrPlace where its place is none, or no client of the kind is registered.
func Open(ctx context.Context, kind, place string, a Access) (Server, error) {
	c := clients[kind]
	if c == nil {
		return nil, fmt.Errorf("contexts: tier %s=: this program was built without its client (-tags lean, or without an import of kvmanager/values/remote): %w", kind, ErrPlace)
	}
	return c(ctx, place, a)
}
