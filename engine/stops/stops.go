// Package stops finds where a generated text ends.
package stops

import "strings"

// Scanner finds stop strings in a stream of text pieces, also where one is spread over several, and holds back text
// that may be the beginning of one.
type Scanner struct {
	Stops []string
	Met   string // the one that ended the text
	held  string
}

// Push adds a piece and returns the text that can be shown, and whether a stop string was met (the text ends before it).
func (s *Scanner) Push(piece string) (show string, stopped bool) {
	text := s.held + piece
	at := -1
	for _, stop := range s.Stops {
		if i := strings.Index(text, stop); stop != "" && i >= 0 && (at < 0 || i < at) {
			at, s.Met = i, stop
		}
	}
	if at >= 0 {
		s.held = ""
		return text[:at], true
	}
	keep := 0
	for _, stop := range s.Stops {
		for n := min(len(stop)-1, len(text)); n > keep; n-- {
			if strings.HasSuffix(text, stop[:n]) {
				keep = n
				break
			}
		}
	}
	s.held = text[len(text)-keep:]
	return text[:len(text)-keep], false
}

// Flush returns what was held back when the stream ends without a stop string.
func (s *Scanner) Flush() string {
	text := s.held
	s.held = ""
	return text
}
