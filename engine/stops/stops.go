// Package stops finds where a generated text ends.
package stops

import "strings"

// Scanner finds stop strings in a stream of text pieces, also where one is spread over several, and holds back text
// that may be the beginning of one.
type Scanner struct {
	Stops []string
	Met   string // the one that ended the text
	held  string
	freed int // bytes of held that end no stop string, since they came by Pass
}

// Push adds a piece and returns the text that can be shown, and whether a stop string was met (the text ends before it).
func (s *Scanner) Push(piece string) (show string, stopped bool) {
	text := s.held + piece
	at := -1
	for _, stop := range s.Stops {
		from := max(0, s.freed-len(stop)+1)
		if i := strings.Index(text[min(from, len(text)):], stop); stop != "" && i >= 0 && (at < 0 || from+i < at) {
			at, s.Met = from+i, stop
		}
	}
	if at >= 0 {
		s.held, s.freed = "", 0
		return text[:at], true
	}
	show = s.hold(text)
	s.freed = max(0, s.freed-len(show))
	return show, false
}

// Pass is Push of a piece in which no stop string ends; one that begins in it may end later.
func (s *Scanner) Pass(piece string) (show string) {
	show = s.hold(s.held + piece)
	s.freed = len(s.held)
	return show
}

// hold keeps what may be the beginning of a stop string.
func (s *Scanner) hold(text string) (show string) {
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
	return text[:len(text)-keep]
}

// Flush returns what was held back when the stream ends without a stop string.
func (s *Scanner) Flush() string {
	text := s.held
	s.held, s.freed = "", 0
	return text
}
