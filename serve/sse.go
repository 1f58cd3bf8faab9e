package serve

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
)

// Times of a stream in which nothing is to be sent.
const (
	firstWait = 5 * time.Second  // for the first event: until then an error still has a status of its own
	keepAlive = 15 * time.Second // then a comment is sent
)

// stream writes server-sent events. The answer begins with the first of them.
type stream struct {
	w     http.ResponseWriter
	r     *http.Request
	begun bool
}

func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
}

// send writes an event, with a name where the API names its events.
func (s *stream) send(name string, v any) error {
	b, err := json.Marshal(v, json.FormatNilMapAsNull(true))
	if err != nil {
		return err
	}
	return s.write(name, b)
}

func (s *stream) write(name string, data []byte) error {
	s.begin()
	var frame []byte
	if name != "" {
		frame = append(append(append(frame, "event: "...), name...), '\n')
	}
	frame = append(append(append(frame, "data: "...), data...), "\n\n"...)
	return s.put(frame)
}

func (s *stream) put(frame []byte) error {
	if _, err := s.w.Write(frame); err != nil {
		return err
	}
	if err := http.NewResponseController(s.w).Flush(); err != nil {
		return errors.Join(errGone, err)
	}
	return nil
}

// events calls on for each event of a reply, in order, keeps the connection alive meanwhile, and returns nil when the request
// has ended.
func (s *stream) events(reply *Reply, on func(e Event) error) error {
	for {
		wait := keepAlive
		if !s.begun {
			wait = firstWait
		}
		ctx, cancel := context.WithTimeout(s.r.Context(), wait)
		events, done, err := reply.Next(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && s.r.Context().Err() == nil {
			s.begin()
			if err := s.put([]byte(": keep-alive\n\n")); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := on(e); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
	}
}
