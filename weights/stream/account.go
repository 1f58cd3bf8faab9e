package stream

// Use are the accounts of a store since it was opened. An expert counts as used once for each step and layer that it takes part in,
// whatever the number of its rows; of a dense model a layer that is not pinned counts.
type Use struct {
	TotalBytes    int64 // of all weights in memory, were they there
	BudgetBytes   int64
	ResidentBytes int64 // now
	PeakBytes     int64
	ReadBytes     int64 // from the model's files
	Used          int64 // experts
	Hits          int64 // of Used: in memory when they were chosen
	Predicted     int64 // of Used: a prediction had asked for them, and they had come or were on their way
	Asked         int64 // by predictions, of what was not there
	Wasted        int64 // of Asked: not used by the step that they were asked for
	Bias          BiasUse
}

type account struct {
	total int64
	peak  int64
	use   Use
	trust trust // in predictions
}

func (a *account) resident(bytes int64) { a.peak = max(a.peak, bytes) }

// Accounts returns them.
func (s *Store) Accounts() Use {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.account.use
	u.TotalBytes, u.BudgetBytes, u.ResidentBytes, u.PeakBytes, u.ReadBytes = s.account.total, s.plan.BudgetBytes, s.held, s.account.peak, s.account.use.ReadBytes
	if s.files != nil {
		u.ReadBytes = s.files.ReadBytes()
	}
	return u
}

// HitShare is the share of the used experts that were in memory; 1 where none was used.
func (u *Use) HitShare() float64 { return share(u.Hits, u.Used, 1) }

// PredictedShare is the share of the used experts that a prediction had asked for.
func (u *Use) PredictedShare() float64 { return share(u.Predicted, u.Used, 0) }

// WastedShare is the share of what predictions read that was not used.
func (u *Use) WastedShare() float64 { return share(u.Wasted, u.Asked, 0) }

func share(part, of int64, none float64) float64 {
	if of == 0 {
		return none
	}
	return float64(part) / float64(of)
}
