package answer

// Kind says what an Event is.
type Kind uint8

// The kinds of events, in the order in which they come of one call: CallStart, CallArguments, CallEnd.
const (
	Thought       Kind = iota // Text is more of what the model thinks
	Text                      // Text is more of the answer
	CallStart                 // call Index of tool Name begins
	CallArguments             // Text is more of the arguments of call Index: all together are one JSON object
	CallEnd                   // call Index is whole, or a Problem of that index came before
	Problem                   // Text says what is wrong with a call: of the answer (Index -1; its text is in Text events) or of call Index
)

// String is the kind's name.
func (k Kind) String() string {
	return [...]string{"thought", "text", "call start", "call arguments", "call end", "problem"}[k]
}

// Event is a part of an answer. Index counts calls from 0.
type Event struct {
	Kind  Kind
	Index int
	Name  string
	Text  string
}

// events collects events, neighbours of one kind united.
type events struct {
	all  []Event
	last []byte // the text of the last one, which may grow
}

func (e *events) add(kind Kind, index int, text []byte) {
	if len(text) == 0 {
		return
	}
	if n := len(e.all); n == 0 || e.all[n-1].Kind != kind || e.all[n-1].Index != index {
		e.flush()
		e.all = append(e.all, Event{Kind: kind, Index: index})
	}
	e.last = append(e.last, text...)
}

func (e *events) flush() {
	if n := len(e.all); n > 0 && len(e.last) > 0 {
		e.all[n-1].Text += string(e.last)
		e.last = e.last[:0]
	}
}

func (e *events) one(x Event) {
	e.flush()
	e.all = append(e.all, x)
}

// take is all events since the last time.
func (e *events) take() []Event {
	e.flush()
	all := e.all
	e.all = nil
	return all
}
