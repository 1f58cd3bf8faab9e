package stream

import (
	"bufio"
	"container/heap"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Choices are which experts tokens used, one token after another, as a run has recorded them. Their file is JSON, one object a line: the
// fields of Choices, then a Chosen for each token.
type Choices struct {
	Format  string   `json:"format"` // choicesFormat
	Model   string   `json:"model"`
	Layers  int      `json:"layers"`
	Experts int      `json:"experts"` // of a layer
	Used    int      `json:"used"`    // of a token in a layer with experts
	Tokens  []Chosen `json:"-"`
}

// Chosen is one token, [layer][of its experts]; a layer without experts has none.
type Chosen struct {
	Used   [][]int `json:"used"`
	Likely [][]int `json:"likely,omitempty"` // that were predicted; nil where nothing was
}

const (
	choicesFormat = "terrace experts 1"
	mostChoices   = 1 << 20 // of a file: experts of all tokens and layers
	mostLine      = 4 << 20 // bytes
)

// NewRecorder is for a model's choices.
func NewRecorder(model string, layers, experts, used int) *Recorder {
	return &Recorder{Choices: Choices{Model: model, Layers: layers, Experts: experts, Used: used}, last: -1}
}

// Write writes them in their file's form.
func (c *Choices) Write(w io.Writer) error {
	out := json.NewEncoder(w)
	c.Format = choicesFormat
	if err := out.Encode(c); err != nil {
		return err
	}
	for i := range c.Tokens {
		if err := out.Encode(&c.Tokens[i]); err != nil {
			return err
		}
	}
	return nil
}

// ReadChoices reads what Write wrote; errors wrap ErrChoices.
func ReadChoices(r io.Reader) (*Choices, error) {
	lines, c := bufio.NewScanner(r), &Choices{}
	lines.Buffer(nil, mostLine)
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), c) != nil || c.Format != choicesFormat {
		return nil, fmt.Errorf("the first line is not that of %q: %w", choicesFormat, ErrChoices)
	}
	if c.Layers < 1 || c.Layers > 4096 || c.Experts < 1 || c.Experts > 1<<16 || c.Used < 1 || c.Used > c.Experts {
		return nil, fmt.Errorf("%d layers, %d experts, %d used: %w", c.Layers, c.Experts, c.Used, ErrChoices)
	}
	for n, left := 2, mostChoices; lines.Scan(); n++ {
		var t Chosen
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			return nil, fmt.Errorf("line %d: %w: %w", n, err, ErrChoices)
		}
		if left -= c.Layers * c.Used; left < 0 {
			return nil, fmt.Errorf("line %d: more than %d choices: %w", n, mostChoices, ErrChoices)
		}
		if !c.valid(t.Used, true) || t.Likely != nil && !c.valid(t.Likely, false) {
			return nil, fmt.Errorf("line %d: want %d layers, each of no or %d different experts below %d: %w", n, c.Layers, c.Used, c.Experts, ErrChoices)
		}
		c.Tokens = append(c.Tokens, t)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrChoices)
	}
	return c, nil
}

// valid reports whether a token's experts are what a layer has; whole: as many as a token uses.
func (c *Choices) valid(layers [][]int, whole bool) bool {
	if len(layers) != c.Layers {
		return false
	}
	for _, list := range layers {
		if len(list) > c.Used || whole && len(list) != 0 && len(list) != c.Used {
			return false
		}
		for i, e := range list {
			if e < 0 || e >= c.Experts || slices.Index(list, e) < i {
				return false
			}
		}
	}
	return true
}

// Recorder collects choices from a model that runs (model.Model.Routed). A pass whose layers have seen different rows is left out: of a
// prompt whose logits nobody asks for, the last layer sees the last row alone. It belongs to one goroutine.
type Recorder struct {
	Choices Choices // Tokens
	Full    bool    // the rest was not recorded: a file holds mostChoices
	pass    []Chosen
	last    int  // layer whose choices came last, -1 = none of the pass
	rows    int  // that it has seen
	uneven  bool // layers have seen different rows
}

// Routed takes a layer's choices: rows[e] are the rows of the pass that expert e has, or is predicted to have.
func (r *Recorder) Routed(layer int, rows [][]int, predicted bool) {
	if len(r.pass) > 0 && layer <= r.last {
		r.End()
	}
	if !predicted {
		n := 0
		for _, list := range rows {
			n += len(list)
		}
		r.uneven = r.uneven || r.last >= 0 && n != r.rows
		r.last, r.rows = layer, n
	}
	for e, list := range rows {
		for _, row := range list {
			for len(r.pass) <= row {
				r.pass = append(r.pass, Chosen{Used: make([][]int, r.Choices.Layers)})
			}
			t := &r.pass[row]
			if !predicted {
				t.Used[layer] = append(t.Used[layer], e)
				continue
			}
			if t.Likely == nil {
				t.Likely = make([][]int, r.Choices.Layers)
			}
			t.Likely[layer] = append(t.Likely[layer], e)
		}
	}
}

// End ends the pass that was taken last.
func (r *Recorder) End() {
	if c := &r.Choices; !r.uneven && (len(c.Tokens)+len(r.pass))*c.Layers*c.Used > mostChoices {
		r.Full = true
	}
	if !r.uneven && !r.Full {
		r.Choices.Tokens = append(r.Choices.Tokens, r.pass...)
	}
	r.pass, r.last, r.uneven = nil, -1, false
}

// Optimum is how many uses find their expert in memory, from the token at skip on, if who leaves is chosen with the whole trace known:
// whoever is used again last (Belady 1966), but none of the token's own layer. At most room experts are there at a time; memory begins
// empty. used is [token][layer][of its experts], each below experts.
func Optimum(used [][][]int, experts, room, skip int) (hits int) {
	var uses []use
	for n, layers := range used {
		for l, list := range layers {
			for _, e := range list {
				uses = append(uses, use{expert: l*experts + e, step: n*len(layers) + l, counts: n >= skip, next: never})
			}
		}
	}
	last := map[int]int{}
	for i := len(uses) - 1; i >= 0; i-- {
		if at, ok := last[uses[i].expert]; ok {
			uses[i].next = uses[at].step
		}
		last[uses[i].expert] = i
	}
	memory, queue := map[int]int{}, &furthest{} // expert → when it is used next
	for i := 0; i < len(uses); {
		end := i
		for end < len(uses) && uses[end].step == uses[i].step {
			end++
		}
		own := map[int]bool{}
		for _, u := range uses[i:end] {
			if _, there := memory[u.expert]; there && u.counts {
				hits++
			}
			own[u.expert] = true
		}
		for _, u := range uses[i:end] {
			if _, there := memory[u.expert]; !there && len(memory) >= room {
				queue.leave(memory, own)
			}
			memory[u.expert] = u.next
			heap.Push(queue, u)
		}
		i = end
	}
	return hits
}

// use is one expert of a token; it is used next at step next.
type use struct {
	expert, step, next int
	counts             bool
}

const never = int(^uint(0) >> 1)

// furthest is a heap of uses, the one that is used again last first. Uses whose expert was used since are stale.
type furthest []use

func (f furthest) Len() int           { return len(f) }
func (f furthest) Less(i, j int) bool { return f[i].next > f[j].next }
func (f furthest) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *furthest) Push(x any)        { *f = append(*f, x.(use)) }
func (f *furthest) Pop() any {
	x := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return x
}

// leave takes the expert out of memory that is used again last, but none of own.
func (f *furthest) leave(memory map[int]int, own map[int]bool) {
	var kept []use
	for f.Len() > 0 {
		u := heap.Pop(f).(use)
		if next, there := memory[u.expert]; !there || next != u.next {
			continue
		}
		if own[u.expert] {
			kept = append(kept, u)
			continue
		}
		delete(memory, u.expert)
		break
	}
	for _, u := range kept {
		heap.Push(f, u)
	}
}
