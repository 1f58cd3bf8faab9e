package offload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"terrace/csdshim"
)

// redialFirst is the wait after the first dial that failed; it doubles from one to the next.
const redialFirst = 20 * time.Millisecond

// Redial ends the connection, if it has not ended, and makes a new one as the same owner: what the drive acknowledged is
// there still.
func (c *CSD) Redial(ctx context.Context) error {
	c.Client().Abandon()
	client, err := csdshim.Dial(ctx, c.socket, c.o.Client)
	if err != nil {
		return fmt.Errorf("offload: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		client.Abandon()
		return fmt.Errorf("offload: csd: %w", ErrClosed)
	}
	c.client, c.opened, c.stats.Retries = client, map[uint64]bool{}, c.stats.Retries+1
	return nil
}

// connected is a client whose connection has not ended: where it has, and the options say so, a new one, tried for
// CSDOptions.Redial. After that was in vain each call tries once.
func (c *CSD) connected(ctx context.Context) (*csdshim.Client, error) {
	client := c.Client()
	if c.o.Redial == 0 || client.Err() == nil {
		return client, nil
	}
	c.redialing.Lock()
	defer c.redialing.Unlock()
	if client = c.Client(); client.Err() == nil {
		return client, nil
	}
	left := c.o.Redial
	if c.gone {
		left = 0
	}
	until, wait := time.Now().Add(left), redialFirst
	for {
		limited, cancel := context.WithTimeout(ctx, max(time.Until(until), redialFirst))
		err := c.Redial(limited)
		cancel()
		if c.gone = err != nil; err == nil {
			return c.Client(), nil
		}
		if errors.Is(err, ErrClosed) || ctx.Err() != nil || time.Until(until) < wait {
			return nil, err
		}
		time.Sleep(wait)
		wait *= 2
	}
}

// suspect ends the connection to a drive that did not answer in time, so that the next call dials anew.
func (c *CSD) suspect(client *csdshim.Client, err error) error {
	if c.o.Redial > 0 && errors.Is(err, csdshim.ErrTimeout) {
		client.Abandon()
	}
	return c.named(err)
}
