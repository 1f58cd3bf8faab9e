//go:build !lean

package choice

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"
)

// readParquet reads a whole file; parquet-go may panic on damaged pages, which is an error like any other here.
func readParquet(path string) (rows []record, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not a readable Parquet file: %v", r)
		}
	}()
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	pf, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		return nil, err
	}
	r := parquet.NewReader(pf)
	defer r.Close()
	for {
		row := record{}
		if err := r.Read(&row); errors.Is(err, io.EOF) {
			return rows, nil
		} else if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
}
