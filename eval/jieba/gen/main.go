// Command gen makes eval/jieba/data/jieba.zst from jieba's source distribution:
//
//	pip download --no-deps jieba==0.42.1 && tar xzf jieba-0.42.1.tar.gz
//	go run ./eval/jieba/gen jieba-0.42.1/jieba eval/jieba/data/jieba.zst
//
// The output is zstd-compressed text in three sections: one line with the sum of all frequencies; one line "WORD FREQ" a
// dictionary word, sorted by bytes, a repeated word with its last frequency, as jieba's own loader leaves it; an empty
// line; one line "STATE HEX LOGPROB" an emission probability of the HMM.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gen JIEBA_FOLDER OUT.zst")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func generate(dir, out string) error {
	var text bytes.Buffer
	if err := addWords(&text, filepath.Join(dir, "dict.txt")); err != nil {
		return err
	}
	text.WriteByte('\n')
	if err := addEmissions(&text, filepath.Join(dir, "finalseg", "prob_emit.py")); err != nil {
		return err
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(8<<20))
	if err != nil {
		return err
	}
	return os.WriteFile(out, w.EncodeAll(text.Bytes(), nil), 0o644)
}

func addWords(text *bytes.Buffer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	freq := map[string]int{}
	total := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		word, rest, ok := strings.Cut(strings.TrimSpace(s.Text()), " ")
		count, _, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(count)
		if !ok || err != nil {
			return fmt.Errorf("%s: bad line %q", path, s.Text())
		}
		freq[word] = n
		total += n
	}
	words := make([]string, 0, len(freq))
	for w := range freq {
		words = append(words, w)
	}
	sort.Strings(words)
	fmt.Fprintln(text, total)
	for _, w := range words {
		fmt.Fprintln(text, w, freq[w])
	}
	return nil
}

var emission = regexp.MustCompile(`(?:'([BMES])': \{)?'\\u([0-9a-f]{4})': (-[0-9.e+]+)`)

func addEmissions(text *bytes.Buffer, path string) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	state := ""
	for _, m := range emission.FindAllStringSubmatch(string(src), -1) {
		if m[1] != "" {
			state = m[1]
		}
		fmt.Fprintln(text, state, m[2], m[3])
	}
	return nil
}
