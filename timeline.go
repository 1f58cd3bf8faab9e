package terrace

import (
	"io"

	"terrace/internal/clock"
	"terrace/internal/trace"
)

// Timeline records when each resource did what: passes and layers that compute, transfers between tiers, waits. It is written while
// it grows, as JSON that https://ui.perfetto.dev reads, in microseconds since NewTimeline. Models and engines may share one.
type Timeline struct{ rec *trace.Recorder }

// NewTimeline begins a timeline that is written to w, which stays the caller's to close.
func NewTimeline(w io.Writer) *Timeline { return &Timeline{trace.New(w, clock.Real().Now)} }

// Close ends the timeline, once what records to it is closed. An error is w's, the first of them.
func (t *Timeline) Close() error { return t.rec.Close() }

// recorder is nil where there is no timeline.
func (t *Timeline) recorder() *trace.Recorder {
	if t == nil {
		return nil
	}
	return t.rec
}
