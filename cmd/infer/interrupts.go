package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts turns SIGINT and SIGTERM into the end of the command's context; a second one ends the process at once. A part of
// a command that can stop by itself takes SIGINT first (take).
type interrupts struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	got    syscall.Signal // the one that ended the context; 0 = none
	taker  func() bool    // nil = nobody takes SIGINT
	ch     chan os.Signal
}

// watchInterrupts begins to listen; stop ends that.
func watchInterrupts() (context.Context, *interrupts) {
	ctx, cancel := context.WithCancel(context.Background())
	i := &interrupts{cancel: cancel, ch: make(chan os.Signal, 2)}
	signal.Notify(i.ch, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range i.ch {
			i.handle(s.(syscall.Signal))
		}
	}()
	return ctx, i
}

func (i *interrupts) handle(s syscall.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case s == syscall.SIGINT && i.taker != nil && i.taker():
	case i.got != 0:
		os.Exit(128 + int(i.got))
	default:
		i.got = s
		i.cancel()
	}
}

// take hands SIGINT to taker until release is called; where taker returns false the signal does what it does otherwise.
// taker must not block.
func (i *interrupts) take(taker func() bool) (release func()) {
	if i == nil {
		return func() {}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.taker = taker
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.taker = nil
	}
}

// signal is the one that ended the context; 0 = none.
func (i *interrupts) signal() syscall.Signal {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.got
}

func (i *interrupts) stop() {
	signal.Stop(i.ch)
	close(i.ch)
	i.cancel()
}
