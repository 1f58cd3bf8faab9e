package serve

import (
	"terrace/engine"
	"terrace/internal/guard"
)

// call is a function that somebody wants run where the engine may be called.
type call struct {
	f    func(e *engine.Engine) error
	done chan error
}

// Call runs f between two steps on the goroutine that owns the engine, and returns its error: so whoever has made the server may
// use the engine beside it. f should be short, a step or a part of a prompt: those who are served wait. errDraining where the
// server is closed.
func (s *Server) Call(f func(e *engine.Engine) error) error {
	c := call{f, make(chan error, 1)}
	l := s.loop
	l.mu.Lock()
	l.calls = append(l.calls, c)
	l.interrupt()
	l.mu.Unlock()
	l.signal()
	select {
	case err := <-c.done:
		return err
	case <-l.done:
	}
	select {
	case err := <-c.done: // it was run just before the end
		return err
	default:
		return errDraining
	}
}

// serveCalls runs what waits to be called.
func (l *loop) serveCalls() {
	l.mu.Lock()
	calls := l.calls
	l.calls = nil
	l.mu.Unlock()
	for _, c := range calls {
		c.done <- guard.Run(func() error { return c.f(l.e) })
	}
}
