package safetensors

import (
	"bytes"
	"cmp"
	"fmt"
	"math"

	"terrace/weights/strictjson"
)

// decode reads the whole header: an object of tensors and perhaps __metadata__, then nothing but blanks.
func (f *File) decode(text []byte) error {
	d := strictjson.NewDecoder(text)
	room := min(bytes.Count(text, []byte("data_offsets")), len(text)/minEntryBytes, maxTensors)
	f.byName, f.entries = make(map[string]int, room), make([]Entry, 0, room)
	err := strictjson.Members(d, func(raw []byte) (err error) {
		name := string(raw)
		if name == "__metadata__" {
			return metadata(d)
		}
		if len(f.entries) >= min(maxTensors, len(text)/minEntryBytes+1) {
			return fmt.Errorf("more than %d tensors", len(f.entries))
		}
		e, err := entry(d, name)
		f.byName[name] = len(f.entries)
		f.entries = append(f.entries, e)
		return err
	})
	if err != nil {
		return err
	}
	return strictjson.End(d)
}

// metadata reads an object of strings, which nothing here needs.
func metadata(d *strictjson.Decoder) error {
	return strictjson.Members(d, func([]byte) error {
		_, err := strictjson.Text(d)
		return err
	})
}

// entry reads {"dtype": …, "shape": …, "data_offsets": …}; other members are skipped.
func entry(d *strictjson.Decoder, name string) (e Entry, err error) {
	e.Name = name
	members, shaped, placed := 0, false, false
	err = strictjson.Members(d, func(key []byte) (err error) {
		if members++; members > maxMembers {
			return fmt.Errorf("tensor %q: more than %d members", name, maxMembers)
		}
		switch string(key) {
		case "dtype":
			var raw []byte
			raw, err = strictjson.Text(d)
			e.DType = string(raw)
		case "shape":
			shaped = true
			e.Shape, err = wholes(d, maxDims)
		case "data_offsets":
			placed = true
			e.begin, e.end, err = offsets(d)
		default:
			err = strictjson.Skip(d, maxDepth)
		}
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		return nil
	})
	for _, part := range []struct {
		name  string
		there bool
	}{{"dtype", e.DType != ""}, {"shape", shaped}, {"data_offsets", placed}} {
		if err == nil && !part.there {
			err = fmt.Errorf("tensor %q: %s is missing", name, part.name)
		}
	}
	return e, err
}

func offsets(d *strictjson.Decoder) (begin, end int, err error) {
	list, err := wholes(d, 2)
	if err != nil || len(list) != 2 {
		return 0, 0, cmp.Or(err, fmt.Errorf("%d data_offsets, want 2", len(list)))
	}
	return list[0], list[1], nil
}

// wholes reads an array of at most n whole numbers from 0 to the largest int.
func wholes(d *strictjson.Decoder, n int) (list []int, err error) {
	list = make([]int, 0, 2)
	err = strictjson.Items(d, func() error {
		if len(list) == n {
			return fmt.Errorf("more than %d numbers in a shape or range", n)
		}
		x, err := whole(d)
		list = append(list, x)
		return err
	})
	return list, err
}

// whole reads a whole number without sign, fraction or exponent.
func whole(d *strictjson.Decoder) (n int, err error) {
	raw, err := d.ReadValue()
	if err != nil {
		return 0, err
	}
	for _, c := range raw {
		digit := int(c) - '0'
		if digit < 0 || digit > 9 {
			return 0, fmt.Errorf("invalid %.20s, want a whole number", raw)
		}
		if n > (math.MaxInt-digit)/10 {
			return 0, fmt.Errorf("%.40s overflows", raw)
		}
		n = n*10 + digit
	}
	return n, nil
}
