package stream

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestOptimum: by hand, and on short random traces as many as the best of all ways to let experts leave.
func TestOptimum(t *testing.T) {
	one := func(experts ...int) (used [][][]int) { // of one layer, one expert a token
		for _, e := range experts {
			used = append(used, [][]int{{e}})
		}
		return used
	}
	trace := one(0, 1, 2, 0, 1, 3, 0, 1) // with room for two: 0 and 1 take turns with 2 and 3
	for room, want := range map[int]int{1: 0, 2: 2, 3: 4, 4: 4} {
		if got := Optimum(trace, 4, room, 0); got != want {
			t.Errorf("room for %d: %d found, want %d", room, got, want)
		}
	}
	if got := Optimum(trace, 4, 3, 6); got != 2 {
		t.Errorf("from the sixth token on: %d found, want 2", got)
	}
	r := rand.New(rand.NewPCG(5, 5))
	for range 200 {
		const experts, layers = 3, 2
		var used [][][]int
		for range 5 {
			token := make([][]int, layers)
			for l := range token {
				token[l] = r.Perm(experts)[:1+r.IntN(2)]
			}
			used = append(used, token)
		}
		room := 2 + r.IntN(3)
		if got, want := Optimum(used, experts, room, 0), best(used, experts, room); got != want {
			t.Fatalf("%v, room for %d: %d found, the best is %d", used, room, got, want)
		}
	}
}

// best tries every expert that may leave.
func best(used [][][]int, experts, room int) int {
	var steps [][]int
	for _, layers := range used {
		for l, list := range layers {
			var own []int
			for _, e := range list {
				own = append(own, l*experts+e)
			}
			steps = append(steps, own)
		}
	}
	var from func(step int, memory []int) int
	from = func(step int, memory []int) int {
		if step == len(steps) {
			return 0
		}
		hits, missing := 0, []int(nil)
		for _, e := range steps[step] {
			if slices.Contains(memory, e) {
				hits++
			} else {
				missing = append(missing, e)
			}
		}
		most := 0
		var fill func(memory, missing []int)
		fill = func(memory, missing []int) {
			if len(missing) == 0 {
				most = max(most, from(step+1, memory))
				return
			}
			if len(memory) < room {
				fill(append(slices.Clone(memory), missing[0]), missing[1:])
				return
			}
			for i, e := range memory {
				if !slices.Contains(steps[step], e) {
					next := slices.Clone(memory)
					next[i] = missing[0]
					fill(next, missing[1:])
				}
			}
		}
		fill(memory, missing)
		return hits + most
	}
	return from(0, nil)
}

// TestChoices: what a recorder was told comes back from its file, token by token, also of passes of several rows and layers without
// experts; other files are refused.
func TestChoices(t *testing.T) {
	r := NewRecorder("m", 3, 4, 2)
	r.Routed(1, [][]int{{0}, {0, 1}, nil, {1}}, true) // of layer 1: row 0 has 0 and 1, row 1 has 1 and 3
	r.Routed(1, [][]int{{0, 1}, {0}, nil, {1}}, false)
	r.Routed(2, [][]int{nil, {1}, {0, 1}, {0}}, false)
	r.Routed(1, [][]int{{0}, nil, {0}, nil}, true) // the next pass begins
	r.Routed(1, [][]int{nil, nil, {0}, {0}}, false)
	r.Routed(2, [][]int{{0}, {0}, nil, nil}, false)
	r.Routed(1, [][]int{{0}, {0}, nil, nil}, false) // without a prediction
	r.Routed(2, [][]int{{0}, nil, {0}, nil}, false)
	r.Routed(1, [][]int{{0, 1}, {0}, nil, {1}}, false) // its last layer sees one row: left out
	r.Routed(2, [][]int{nil, {0}, {0}, nil}, false)
	r.Routed(1, [][]int{nil, {0}, nil, {0}}, false)
	r.Routed(2, [][]int{nil, {0}, {0}, nil}, false)
	r.End()
	want := []Chosen{
		{Used: [][]int{nil, {0, 1}, {2, 3}}, Likely: [][]int{nil, {0, 1}, nil}},
		{Used: [][]int{nil, {0, 3}, {1, 2}}, Likely: [][]int{nil, {1, 3}, nil}},
		{Used: [][]int{nil, {2, 3}, {0, 1}}, Likely: [][]int{nil, {0, 2}, nil}},
		{Used: [][]int{nil, {0, 1}, {0, 2}}},
		{Used: [][]int{nil, {1, 3}, {1, 2}}},
	}
	var file bytes.Buffer
	if err := r.Choices.Write(&file); err != nil {
		t.Fatal(err)
	}
	text := file.String()
	got, err := ReadChoices(&file)
	if err != nil || !reflect.DeepEqual(got.Tokens, want) || got.Model != "m" || got.Layers != 3 || got.Experts != 4 || got.Used != 2 {
		t.Errorf("%v\n%+v, want\n%+v", err, got, want)
	}
	for _, c := range [][2]string{{"terrace experts 1", "terrace experts 2"}, {`"layers":3`, `"layers":0`}, {`"layers":3`, `"layers":4`}, {`"used":2`, `"used":5`}, {"[2,3]", "[2,2]"}, {"[2,3]", "[2,4]"}, {"[2,3]", "[-1,3]"},
		{"[2,3]", "[2]"}, {"[1,3]", "[1,2,3]"}, {"[1,3]", "[1,9]"}, {"null", "7"}, {"\n", ""}} {
		if _, err := ReadChoices(strings.NewReader(strings.Replace(text, c[0], c[1], 1))); !errors.Is(err, ErrChoices) {
			t.Errorf("%s for %s: %v", c[1], c[0], err)
		}
	}
	if _, err := ReadChoices(strings.NewReader("")); !errors.Is(err, ErrChoices) {
		t.Errorf("an empty file: %v", err)
	}
}

// TestRecorderIsBounded: what is recorded can be read again, however long the run.
func TestRecorderIsBounded(t *testing.T) {
	const tokens = mostChoices / 64
	r := NewRecorder("m", 64, 2, 1)
	rows := make([]int, tokens/4)
	for i := range rows {
		rows[i] = i
	}
	for pass := range 6 {
		if r.Routed(0, [][]int{rows, nil}, false); r.Full != (pass > 4) {
			t.Fatalf("pass %d: full %t with %d tokens", pass, r.Full, len(r.Choices.Tokens))
		}
	}
	r.End()
	var file bytes.Buffer
	if err := r.Choices.Write(&file); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadChoices(&file); err != nil || len(got.Tokens) != tokens {
		t.Errorf("%v", err)
	}
}
