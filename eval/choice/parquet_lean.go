//go:build lean

package choice

import "errors"

// A lean build has no reader of Parquet: such files are refused by name.
func readParquet(string) ([]record, error) {
	return nil, errors.New("this binary was built with -tags lean, which reads no Parquet; JSONL files of the same rows will do")
}
