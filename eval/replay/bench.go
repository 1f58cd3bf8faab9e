package replay

import (
	"fmt"

	"terrace/engine/shelf"
)

// Bench answers questions about contexts with an engine.
type Bench struct {
	shelf.Reader
	Salt string // of contexts in the engine's store
	ids  map[string][]int
}

// encode gives the ids of a context, and of a question behind one, each by itself.
func (b *Bench) encode(c *Context) ([]int, error) {
	if ids := b.ids[c.ID]; ids != nil {
		return ids, nil
	}
	ids, err := b.Tokenizer.Encode(c.Text, true, false)
	if err == nil && len(ids) == 0 {
		err = fmt.Errorf("replay: context %q has no tokens", c.ID)
	}
	if b.ids == nil {
		b.ids = map[string][]int{}
	}
	b.ids[c.ID] = ids
	return ids, err
}

func (b *Bench) question(text string) ([]int, error) { return b.Tokenizer.Encode(text, false, false) }
