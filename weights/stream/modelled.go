package stream

import "time"

// Disk is what reads and bringing into form cost in a Modelled store. The zero value costs no time.
type Disk struct {
	BytesPerS float64       // of all reads together; 0 = no limit
	Latency   time.Duration // of one read of at most pieceBytes, beside that; as many as there are readers wait at a time
	Align     int64         // that reads are rounded to, in bytes; 0 = 1
	// FormBytesPerS is how fast all processors together check what has come and bring it into form, time that who computes does not have;
	// 0 = no limit.
	FormBytesPerS float64
}

// Modelled is a store of experts without memory and files, on a clock of its own that begins at 0: what is there, what is read, in
// which order, and what leaves is decided by the code of a Store; when a read ends is said by a Disk. It belongs to one goroutine.
type Modelled struct {
	s    *Store
	disk Disk

	now    time.Duration
	line   time.Duration // when the disk has moved all that was asked for
	form   time.Duration // when all that came is in form
	flying []flight      // reads under way, in the order in which they end
	step   Step
}

// flight is a read under way.
type flight struct {
	u     *unit
	moved time.Duration // when its bytes have come
	forms time.Duration // how long bringing it into form takes
}

// NewModelled reads what stays. The plan's matrices stay vacant, and nothing is opened. Errors wrap ErrBudget.
func NewModelled(p Plan, d Disk) (*Modelled, error) {
	s, first, err := newStore(p)
	if err != nil {
		return nil, err
	}
	d.Align = max(d.Align, 1)
	m := &Modelled{s: s, disk: d}
	s.stall.await = m.await
	return m, s.pin(first)
}

// Now is the time since the beginning.
func (m *Modelled) Now() time.Duration { return m.now }

// Accounts are the store's.
func (m *Modelled) Accounts() Use { return m.s.Accounts() }

// Predict is Store.Predict.
func (m *Modelled) Predict(layer int, experts []int) {
	m.s.Predict(layer, experts)
	m.ask()
}

// Compute passes time in which who computes is busy, and what bringing reads into form takes of it.
func (m *Modelled) Compute(busy time.Duration) {
	end := m.now + busy
	for m.ask(); len(m.flying) > 0 && m.end(m.flying[0]) <= end; m.ask() {
		end += m.flying[0].forms
		m.arrive()
	}
	m.now = end
}

// Use passes a layer's step of n tokens (Store.Use), in which each expert takes so long to compute.
func (m *Modelled) Use(layer int, rows func(expert int) int, n int, order bool, each time.Duration) error {
	m.s.Use(&m.step, layer, rows, n, order)
	defer m.step.End()
	m.ask()
	for {
		_, ok, err := m.step.Next()
		if err != nil || !ok {
			return err
		}
		m.Compute(each)
	}
}

// Settle passes the time until nothing is on its way.
func (m *Modelled) Settle() {
	for m.ask(); len(m.flying) > 0; m.ask() {
		m.arrive()
	}
}

// ask hands reads to the disk, as many as there are readers.
func (m *Modelled) ask() {
	for len(m.flying) < readers {
		u, p, ok := m.s.first()
		if !ok {
			return
		}
		part := &u.parts[p.part]
		row := part.W.Type().RowBytes(part.W.Cols())
		_, _, bytes := window(part.Offset+int64(p.row)*int64(row), p.rows*row, m.disk.Align)
		m.s.account.use.ReadBytes += int64(bytes)
		m.line = max(m.line, m.now) + takes(bytes, m.disk.BytesPerS)
		m.flying = append(m.flying, flight{u, m.line + m.disk.Latency, takes(bytes, m.disk.FormBytesPerS)})
	}
}

// takes is the time of some bytes at a rate.
func takes(bytes int, perS float64) time.Duration {
	if perS == 0 {
		return 0
	}
	return time.Duration(float64(bytes) / perS * float64(time.Second))
}

// end is when a read is in form.
func (m *Modelled) end(f flight) time.Duration { return max(f.moved, m.form) + f.forms }

// arrive passes the time until the first read under way is in form.
func (m *Modelled) arrive() {
	f := m.flying[0]
	m.flying = m.flying[1:]
	m.form = m.end(f)
	m.now = max(m.now, m.form)
	m.s.arrived(f.u, nil)
}

// await is how the store waits: for the next read to end.
func (m *Modelled) await() {
	if m.ask(); len(m.flying) == 0 {
		panic("stream: a step waits, and nothing is on its way") // a plan that Check lets pass has room for a step
	}
	m.arrive()
}
