package engine

import "fmt"

// Suspend moves what the session keeps in host memory while it runs, the state of recurrent layers before all, to the tier below, so
// that others have the room; the session goes on after Resume as if nothing had been, but for its logits, which are those of no token
// until the next. ErrOption, or an error of the tier: then nothing has changed.
func (s *Session) Suspend() error {
	if s.arriving != nil || s.e.KVOnDevice() || s.text.OnDrives() {
		return fmt.Errorf("engine: suspend of a session whose KV is on its way, on a device or on drives: %w", ErrOption)
	}
	if err := s.Sequence().Suspend(); err != nil {
		return err
	}
	s.dropLogits()
	return nil
}

// Resume brings back what Suspend has moved. After an error, kvmanager.ErrBudget where there is no room, the session is suspended as before.
func (s *Session) Resume() error { return s.Sequence().Resume() }
