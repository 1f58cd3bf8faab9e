package offline

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/gofrs/flock"

	"terrace/internal/replace"
)

// Output is where answers go, one a line. Its methods are for any goroutine.
type Output struct {
	mu   sync.Mutex
	w    io.Writer
	file *os.File // nil = a stream
	lock *flock.Flock
	done map[int]string // keys of the rows that are there
}

// Stream writes answers to w, and knows of none before.
func Stream(w io.Writer) *Output { return &Output{w: w} }

// Open opens an output file, locked against others; rows that it holds are finished, those with an error are taken out, to be tried
// again. ErrBusy where another process writes it.
func Open(path string) (*Output, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	o := &Output{w: f, file: f, lock: flock.New(path, flock.SetFlag(os.O_RDWR)), done: map[int]string{}}
	if ok, err := o.lock.TryLock(); err != nil || !ok {
		f.Close()
		if err == nil {
			err = fmt.Errorf("offline: %s: another process writes it: %w", path, ErrBusy)
		}
		return nil, err
	}
	kept, failed, err := o.take()
	if err == nil && failed {
		err = o.rewrite(kept)
	}
	if err != nil {
		o.Close()
		return nil, fmt.Errorf("offline: %s: %w", path, err)
	}
	return o, nil
}

// rewrite leaves these lines, behind which the file goes on. They are written beside the file first: who is killed meanwhile has both.
func (o *Output) rewrite(lines []byte) error {
	if err := replace.WriteFile(o.file.Name(), lines, 0o644); err != nil {
		return err
	}
	f, err := os.OpenFile(o.file.Name(), os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	lock := flock.New(o.file.Name(), flock.SetFlag(os.O_RDWR))
	if ok, err := lock.TryLock(); err != nil || !ok {
		f.Close()
		return errors.Join(err, ErrBusy)
	}
	err = errors.Join(o.file.Close(), o.lock.Unlock())
	o.w, o.file, o.lock = f, f, lock
	return err
}

// take reads what is there and cuts a torn line off; it returns the lines of rows without an error, and whether there are others.
func (o *Output) take() (kept []byte, failed bool, err error) {
	in, whole := bufio.NewReader(o.file), int64(0)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				err = o.file.Truncate(whole)
			} else {
				err = nil
			}
			return kept, failed, err
		}
		if err != nil {
			return nil, false, err
		}
		whole += int64(len(line))
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var a Answer
		if err := json.Unmarshal(line, &a); err != nil || a.Row < 1 || a.Key == "" {
			return nil, false, fmt.Errorf("line %d is no answer to a row: give another file: %w", n, ErrOther)
		}
		if a.Error != "" || a.Response != nil && a.Response.Status >= 400 {
			failed = true
			continue
		}
		o.done[a.Row] = a.Key
		kept = append(kept, line...)
	}
}

// Done is how many rows are there.
func (o *Output) Done() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.done)
}

// has reports whether a row is there; ErrOther where it was another, or answered otherwise.
func (o *Output) has(row int, key string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	have, ok := o.done[row]
	if ok && have != key {
		return false, fmt.Errorf("offline: row %d of the output answers another row, or by another model or settings: take those, or give another file: %w", row, ErrOther)
	}
	return ok, nil
}

// put writes an answer as one line, and syncs it.
func (o *Output) put(a *Answer) error {
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.w.Write(append(line, '\n')); err != nil || o.file == nil {
		return err
	}
	return o.file.Sync()
}

// Close gives the file back.
func (o *Output) Close() error {
	if o.file == nil {
		return nil
	}
	return errors.Join(o.file.Close(), o.lock.Unlock())
}
