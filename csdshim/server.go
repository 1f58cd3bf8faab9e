package csdshim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"terrace/internal/clock"
)

// ServerOptions of Serve.
type ServerOptions struct {
	Log func(line string) // of what no client is told; nil: nowhere
}

// What clients may do to a drive.
const (
	maxConns         = 64               // connections at once
	handshakeTimeout = 5 * time.Second  // until a client has said hello
	writeTimeout     = 30 * time.Second // a client that takes nothing for so long is cut off
)

// acceptPause is the wait after a connection that could not be accepted.
const acceptPause = 50 * time.Millisecond

// Serve serves clients until ctx ends; then it closes listener and connections, waits for what is in progress, and returns
// nil. The drive stays open.
func (d *Drive) Serve(ctx context.Context, l net.Listener, o ServerOptions) error {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	slots := make(chan struct{}, maxConns)
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() {
				o.Log(fmt.Sprintf("csdshim: accept: %v", err)) // out of file descriptors, for instance: later ones may work
				if clock.Real().Sleep(ctx, acceptPause) != nil {
					return nil
				}
				continue
			}
			return fmt.Errorf("csdshim: accept: %w", err)
		}
		select {
		case slots <- struct{}{}:
		default:
			o.Log(fmt.Sprintf("csdshim: more than %d connections: one was refused", maxConns))
			c.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			newConn(d, c, o).serve(ctx)
		})
	}
}
