package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"terrace/internal/units"
)

// Limits of what is read as a prompt or text: what has an end is known beforehand, what may have none is cut off early.
const (
	maxFileBytes   = 1 << 30 // of a regular file
	maxPipeBytes   = 64 << 20
	maxDeviceBytes = 1 << 20 // typed at a terminal
)

// readBounded reads all of in, no more than its kind allows, in memory of that size (of a pipe up to 2.3 times of it).
func readBounded(in io.Reader, name string) (string, error) {
	limit, kind, size := int64(maxPipeBytes), "a pipe", int64(0)
	from := in
	if waiting, ok := in.(*firstRead); ok {
		from = waiting.in
	}
	if file, ok := from.(*os.File); ok {
		st, err := file.Stat()
		if err != nil {
			return "", dataErrorf("%s: %v", name, err)
		}
		switch {
		case st.Mode().IsRegular():
			limit, kind, size = maxFileBytes, "a file", st.Size()
		case st.Mode()&fs.ModeDevice != 0:
			limit, kind = maxDeviceBytes, "a device"
		}
	}
	var b strings.Builder
	if size <= limit {
		b.Grow(int(size))
		if _, err := io.Copy(&b, io.LimitReader(in, limit+1)); err != nil {
			return "", dataErrorf("%s: %v", name, err)
		}
	}
	if size > limit || int64(b.Len()) > limit {
		return "", dataErrorf("%s: more than %s, the most that is read of %s", name, units.FormatBytes(limit), kind)
	}
	return b.String(), nil
}

// readIDs reads a JSON array of token ids; there is at least one.
func readIDs(path string) ([]int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, dataErrorf("%v", err)
	}
	defer file.Close()
	text, err := readBounded(file, path)
	if err != nil {
		return nil, err
	}
	var ids tokenIDs
	if err := json.Unmarshal([]byte(text), &ids); err != nil {
		return nil, dataErrorf("%s: want a JSON array of token ids: %v", path, err)
	}
	if len(ids) == 0 {
		return nil, dataErrorf("%s: no token ids", path)
	}
	return ids, nil
}

// tokenIDs is a JSON array of integers, without the nulls that a []int takes for zeros.
type tokenIDs []int

// UnmarshalJSON implements json.Unmarshaler.
func (t *tokenIDs) UnmarshalJSON(data []byte) error {
	var list []*int
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	if *t = nil; list != nil { // [] has ids, null has none
		*t = tokenIDs{}
	}
	for i, id := range list {
		if id == nil {
			return fmt.Errorf("item %d is null", i)
		}
		*t = append(*t, *id)
	}
	return nil
}
