package kvpage

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"terrace/internal/cacheshape"
	"terrace/internal/nearest"
)

// Types are the element types of a cache: of its keys and values, and of layers that keep theirs in more bits, since they bear fewer
// badly or are small.
type Types struct {
	K, V Elem
	Own  []Own
}

// Own is layers whose keys and values have a type of their own.
type Own struct {
	First, Last int  // numbers from 0 on
	Sliding     bool // instead, those with a sliding window
	Elem        Elem
}

// sliding is what names the layers with a sliding window.
const sliding = "sliding"

// String is as ParseTypes reads it.
func (o Own) String() string {
	layers := fmt.Sprintf("%d-%d", o.First, o.Last)
	switch {
	case o.Sliding:
		layers = sliding
	case o.First == o.Last:
		layers = strconv.Itoa(o.First)
	}
	return layers + "=" + o.Elem.String()
}

// ParseTypes reads TYPE for keys and values, or k=TYPE,v=TYPE, where a side that is not named takes the type that names none, else
// f16; and beside them LAYERS=TYPE, with LAYERS numbers and ranges joined by +, or sliding: "int3,0-1+29=int8".
func ParseTypes(s string) (t Types, err error) {
	both, sides := "", map[string]string{}
	for part := range strings.SplitSeq(s, ",") {
		side, name, ok := strings.Cut(part, "=")
		switch {
		case !ok:
			both = part
		case side != "k" && side != "v":
			own, err := parseOwn(side, name)
			if err != nil {
				return Types{}, err
			}
			t.Own = append(t.Own, own...)
		case sides[side] != "":
			return Types{}, fmt.Errorf("%q is given twice", side)
		default:
			sides[side] = name
		}
	}
	for side, e := range map[string]*Elem{"k": &t.K, "v": &t.V} {
		bad := error(nil)
		if *e, bad = ParseElem(cmp.Or(sides[side], both, "f16")); bad != nil {
			return Types{}, bad
		}
	}
	return t, t.Validate()
}

// parseOwn reads LAYERS=TYPE.
func parseOwn(layers, name string) (own []Own, err error) {
	e, err := ParseElem(name)
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(layers, "+") {
		if part == sliding {
			own = append(own, Own{Sliding: true, Elem: e})
			continue
		}
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || to < from {
			return nil, fmt.Errorf("kvpage: %q of %s=%s: want k, v, numbers and ranges of layers joined by + (0-1+29), or %s%s: %w", part, layers, name, sliding, nearest.Hint(part, []string{sliding}), ErrElem)
		}
		own = append(own, Own{First: int(from), Last: int(to), Elem: e})
	}
	return own, nil
}

// Quantised says that keys or values share scales.
func (t Types) Quantised() bool { return t.K.Quantised() || t.V.Quantised() }

// Validate reports layers whose own type has fewer bits than the cache's, or stands beside one that is not quantised, wrapping ErrElem.
func (t Types) Validate() error {
	for _, own := range t.Own {
		if !t.Quantised() {
			return fmt.Errorf("kvpage: %v beside %v keys and %v values: layers have types of their own beside quantised ones: %w", own, t.K, t.V, ErrElem)
		}
		if least := max(t.K.Bits(), t.V.Bits()); own.Elem.Bits() < least {
			return fmt.Errorf("kvpage: %v beside %v keys and %v values: want a type of %d bits or more: %w", own, t.K, t.V, least, ErrElem)
		}
	}
	return nil
}

// Mark gives layers of a model their own types. It names layers that the model has not, that keep nothing, or that are given twice;
// errors wrap ErrElem.
func (t Types) Mark(m cacheshape.Model) error {
	if err := t.Validate(); err != nil {
		return err
	}
	for _, own := range t.Own {
		first, last, found := own.First, own.Last, 0
		if own.Sliding {
			first, last = 0, len(m)-1
		}
		if last >= len(m) {
			return fmt.Errorf("kvpage: KV types: %v: the model has layers 0 to %d: %w", own, len(m)-1, ErrElem)
		}
		for i := first; i <= last; i++ {
			kv := &m[i].KV
			switch {
			case own.Sliding && kv.Window == 0:
				continue
			case kv.Heads == 0:
				return fmt.Errorf("kvpage: KV types: %v: layer %d keeps no keys and values of its own: %w", own, i, ErrElem)
			case kv.Type != 0:
				return fmt.Errorf("kvpage: KV types: %v: layer %d is given two types: %w", own, i, ErrElem)
			}
			kv.Type = uint8(own.Elem) + 1
			found++
		}
		if found == 0 {
			return fmt.Errorf("kvpage: KV types: %v: no layer has a sliding window: %w", own, ErrElem)
		}
	}
	return nil
}
