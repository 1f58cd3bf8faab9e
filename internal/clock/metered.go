package clock

import "sync"

// Metered is the machine's clock, which counts the work that Spend tells it of.
type Metered struct {
	realClock
	mu    sync.Mutex
	spend [Works]int64
}

// NewMetered returns a clock that has counted nothing.
func NewMetered() *Metered { return &Metered{} }

// Spent is what was counted of each kind of work since it was asked last.
func (c *Metered) Spent() (n [Works]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, c.spend = c.spend, n
	return n
}

func (c *Metered) spent(w Work, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spend[w] += n
}
