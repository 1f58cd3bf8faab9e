package trace

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Story is what was done for one request, and what it waited for: spans on rows by name, held in memory, at most as many as
// NewStory says; of the others the number. The nil Story records nothing. It is one goroutine's at a time.
type Story struct {
	most  int
	more  int
	rows  []string
	spans []storySpan
}

type storySpan struct {
	row        int
	start, end time.Duration
	count      string
	n          int
}

// NewStory is an empty one of at most so many spans.
func NewStory(most int) *Story { return &Story{most: most} }

// Add records a span; times are from the request's beginning. count names a number that is known of it, "" none.
func (s *Story) Add(row string, start, end time.Duration, count string, n int) {
	switch {
	case s == nil:
		return
	case len(s.spans) == s.most:
		s.more++
		return
	}
	at := 0
	for at < len(s.rows) && s.rows[at] != row {
		at++
	}
	if at == len(s.rows) {
		s.rows = append(s.rows, row)
	}
	s.spans = append(s.spans, storySpan{at, start, max(start, end), count, n})
}

// Write writes the spans in Chrome's trace event format; title is the process's name.
func (s *Story) Write(w io.Writer, title string) error {
	if s == nil {
		return nil
	}
	if s.more > 0 {
		title = fmt.Sprintf("%s (%d later spans are left out)", title, s.more)
	}
	out := bufio.NewWriter(w)
	b := append([]byte(`{"displayTimeUnit":"ms","traceEvents":[`+"\n"+`{"ph":"M","pid":1,"name":"process_name","args":{"name":`), quote(nil, title, -1)...)
	b = append(b, "}}"...)
	for i, name := range s.rows {
		b = append(strconv.AppendInt(append(b, ",\n"+`{"ph":"M","pid":1,"tid":`...), int64(i)+1, 10), `,"name":"thread_name","args":{"name":`...)
		b = append(quote(b, name, -1), "}}"...)
	}
	for i := range s.spans {
		e := &s.spans[i]
		b = append(strconv.AppendInt(append(b, ",\n"+`{"ph":"X","pid":1,"tid":`...), int64(e.row)+1, 10), `,"name":`...)
		b = append(quote(b, s.rows[e.row], -1), `,"ts":`...)
		b = append(micros(b, e.start), `,"dur":`...)
		b = micros(b, e.end-e.start)
		if e.count != "" {
			b = append(quote(append(b, `,"args":{`...), e.count, -1), ':')
			b = append(strconv.AppendInt(b, int64(e.n), 10), '}')
		}
		b = append(b, '}')
	}
	_, _ = out.Write(append(b, "\n]}\n"...)) // Flush gives its error
	return out.Flush()
}
