package serve

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/tokenizer"
)

// tokenBiases are what is added to tokens' logits: an object of ids as OpenAI has it, or pairs as llama.cpp's server takes them
// ([[15043, 1.5], ["Hello", -0.5], [2, false]]), where a text means each of its tokens and false that a token never comes.
type tokenBiases []tokenBias

type tokenBias struct {
	id   int
	text string // instead of id; "" = none
	add  float64
}

// neverBias is added to the logit of a token that never comes: no other outweighs it, and sums stay finite.
const neverBias = -1e9

// UnmarshalJSON implements json.Unmarshaler.
func (l *tokenBiases) UnmarshalJSON(b []byte) error {
	const want = "want an object of token ids and numbers, or a list of [token id or text, number or false]"
	*l = nil
	switch v := jsontext.Value(b); v.Kind() {
	case 'n':
		return nil
	case '{':
		var object map[string]float64
		if json.Unmarshal(b, &object) != nil {
			return badField("logit_bias", want)
		}
		for name, add := range object {
			id, err := strconv.Atoi(name)
			if err != nil {
				return badField("logit_bias", "%.20q is no token id; a text goes into a list: [[%.20q, %g]]", name, name, add)
			}
			if err := l.add(tokenBias{id: id, add: add}); err != nil {
				return err
			}
		}
		return nil
	case '[':
		var pairs [][2]jsontext.Value
		if json.Unmarshal(b, &pairs) != nil {
			return badField("logit_bias", want)
		}
		for _, p := range pairs {
			one := tokenBias{}
			if p[0].Kind() == 'n' || json.Unmarshal(p[0], &one.id) != nil && (json.Unmarshal(p[0], &one.text) != nil || one.text == "") {
				return badField("logit_bias", want)
			}
			switch p[1].Kind() {
			case 'f':
				*l = append(*l, tokenBias{one.id, one.text, neverBias})
			case '0':
				if json.Unmarshal(p[1], &one.add) != nil {
					return badField("logit_bias", want)
				}
				if err := l.add(one); err != nil {
					return err
				}
			default:
				return badField("logit_bias", want)
			}
		}
		return nil
	}
	return badField("logit_bias", want)
}

func (l *tokenBiases) add(b tokenBias) error {
	if b.add < -100 || b.add > 100 {
		who := b.text
		if who == "" {
			who = fmt.Sprintf("token %d", b.id)
		}
		return badField("logit_bias", "%g for %.40s, want -100 to 100", b.add, who)
	}
	*l = append(*l, b)
	return nil
}

// apply fills a request in; what is said of a token more than once adds up.
func (l tokenBiases) apply(s *Server, r *Request) error {
	vocab := s.o.Engine.Model().Vocab
	if len(l) > vocab {
		return badField("logit_bias", "%d tokens, the vocabulary has %d", len(l), vocab)
	}
	if len(l) > 0 {
		r.Bias = make(map[int]float32, len(l))
	}
	for _, b := range l {
		ids := []int{b.id}
		if b.text != "" {
			var err error
			if ids, err = s.o.Tokenizer.EncodeWith(b.text, tokenizer.EncodeOptions{Most: s.o.Engine.Options().Context}); err != nil {
				return badField("logit_bias", "%s", oneLine(err))
			}
		}
		for _, id := range ids {
			if id < 0 || id >= vocab {
				return badField("logit_bias", "%d is no token id, want 0 to %d", id, vocab-1)
			}
			r.Bias[id] += float32(b.add)
		}
	}
	return nil
}
