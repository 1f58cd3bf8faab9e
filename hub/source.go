package hub

import (
	"context"
	"time"
)

// source is one place that a model can be fetched from. A new kind of source is a new file with this interface and one
// line in name.go or catalogue.go.
type source interface {
	// String names the source in errors, notices and manifests.
	String() string
	// fetch writes the model's files into j.dir, verified against every checksum the source knows, and returns the file
	// to open ("." for the folder itself) with all files. A failed fetch leaves nothing but what it can resume from.
	fetch(ctx context.Context, j *job) (main string, files []File, err error)
}

// job is one attempt to fetch one model from one source.
type job struct {
	hub  *Hub
	name string
	dir  string // staging folder of this source, kept when an attempt is interrupted
	last time.Time
}

const progressEvery = 100 * time.Millisecond

// progress reports bytes of a stage, at most ten times a second but always at its end.
func (j *job) progress(stage string, doneBytes, totalBytes int64) {
	if j.hub.options.Progress == nil {
		return
	}
	now := time.Now()
	if doneBytes != totalBytes && now.Sub(j.last) < progressEvery {
		return
	}
	j.last = now
	j.hub.options.Progress(Progress{Name: j.name, Stage: stage, DoneBytes: doneBytes, TotalBytes: totalBytes})
}
