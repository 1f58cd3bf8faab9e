package kvmanager

// Borrower keeps what is useful but not needed in bytes of the budget that the cache does not use.
type Borrower interface {
	// Most is how many bytes it can use.
	Most() int64
	// Limit sets how many bytes it may hold from now on: what is beyond is gone when Limit returns.
	Limit(bytes int64)
}

// lendSteps is how many times at most a borrower gives something back until all is back.
const lendSteps = 64

// Lend has a borrower hold what it can of the budget while the cache leaves it: the cache takes bytes back when it needs them, before
// anything of its own leaves memory, and lends them again when a sequence is freed. A manager has one borrower.
func (m *Manager) Lend(b Borrower) {
	m.borrower, m.lent = b, b.Most()
	if m.o.BudgetBytes > 0 {
		m.lent = max(0, min(m.lent, m.o.BudgetBytes-m.inUse))
	}
	b.Limit(m.lent)
}

// lend lends what has become free.
func (m *Manager) lend() {
	if m.borrower == nil || m.o.BudgetBytes == 0 {
		return
	}
	if n := min(m.borrower.Most(), m.o.BudgetBytes-m.inUse); n > m.lent {
		m.lent = n
		m.borrower.Limit(n)
	}
}

// takeBack has the borrower give back what is not there for that many more bytes of the cache's own.
func (m *Manager) takeBack(more int64) {
	lacking := m.inUse + more + m.lent - m.o.BudgetBytes
	if m.lent == 0 || m.o.BudgetBytes == 0 || lacking <= 0 {
		return
	}
	m.lent = max(0, m.lent-max(lacking, m.borrower.Most()/lendSteps))
	m.borrower.Limit(m.lent)
}
