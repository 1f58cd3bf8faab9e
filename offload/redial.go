package offload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"terrace/csdshim"
)

// redialFor is for how long a drive whose connection has ended is dialled. The wait after a dial that failed doubles from the first to the longest, so
// that a drive that is started again is found soon and one that is gone costs a dozen dials.
const (
	redialFor     = 2 * time.Second
	redialFirst   = 20 * time.Millisecond
	redialLongest = 320 * time.Millisecond
)

// redial ends the connection, if it has not ended, and makes a new one as the same owner: what the drive acknowledged is
// there still.
func (c *dialled) redial(ctx context.Context) error {
	c.connection().Abandon()
	client, err := c.o.Dial.dial(ctx, c.socket, csdshim.ClientOptions{Owner: c.owner, Timeout: c.o.Timeout})
	if err != nil {
		return fmt.Errorf("offload: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		client.Abandon()
		return fmt.Errorf("offload: csd: %w", ErrClosed)
	}
	c.client, c.opened = client, map[uint64]bool{}
	return nil
}

// connected is a client whose connection has not ended: where it has, a new one, dialled for redialFor. After that was
// in vain each call dials once.
func (c *dialled) connected(ctx context.Context) (Link, error) {
	client := c.connection()
	if client.Err() == nil {
		return client, nil
	}
	c.redialing.Lock()
	defer c.redialing.Unlock()
	if client = c.connection(); client.Err() == nil {
		return client, nil
	}
	clock := c.o.Clock
	if c.unproven && clock.Sleep(ctx, redialFirst) != nil { // the drive took the last connection and ended it: it is being stopped
		return nil, c.named(client.Err())
	}
	until, wait := clock.Now()+redialFor, redialFirst
	if c.gone {
		until = clock.Now()
	}
	for {
		left := until - clock.Now()
		limited, cancel := context.WithTimeout(ctx, max(left, redialFirst))
		err := c.redial(limited)
		cancel()
		if c.gone = err != nil; err == nil {
			c.unproven = true
			return c.connection(), nil
		}
		left = until - clock.Now()
		if errors.Is(err, ErrClosed) || left <= 0 {
			return nil, err
		}
		if clock.Sleep(ctx, min(wait, left)) != nil {
			return nil, err
		}
		wait = min(2*wait, redialLongest)
	}
}

// suspect ends the connection to a drive that did not answer in time, or that could not be written to, so that the next call
// dials: the client itself notices the latter only when it reads.
func (c *dialled) suspect(client Link, err error) error {
	if errors.Is(err, csdshim.ErrTimeout) || errors.Is(err, csdshim.ErrLost) {
		client.Abandon()
	}
	return c.named(err)
}
