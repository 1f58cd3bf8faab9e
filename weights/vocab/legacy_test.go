package vocab_test

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"terrace/tokenizer"
)

// proto writes protobuf fields.
type proto []byte

func (p proto) varint(field int, v uint64) proto {
	return binary.AppendUvarint(binary.AppendUvarint(p, uint64(field)<<3), v)
}

func (p proto) data(field int, v []byte) proto {
	return append(binary.AppendUvarint(binary.AppendUvarint(p, uint64(field)<<3|2), uint64(len(v))), v...)
}

func (p proto) float(field int, v float32) proto {
	return binary.LittleEndian.AppendUint32(binary.AppendUvarint(p, uint64(field)<<3|5), math.Float32bits(v))
}

// sentencePiece writes a tokenizer.model.
func sentencePiece(kind uint64, dummyPrefix, extraSpaces bool) []byte {
	var m proto
	add := func(text string, score float32, kind uint64) {
		m = m.data(1, proto(nil).data(1, []byte(text)).float(2, score).varint(3, kind))
	}
	add("<unk>", 0, 2)
	add("<s>", 0, 3)
	add("</s>", 0, 3)
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), 0, 6)
	}
	for i, text := range []string{"▁a", "▁", "a", "b", "ab", "▁ab"} {
		add(text, -float32(i), 1)
	}
	add("<user>", 0, 4)
	add("▁▁", 0, 4)
	add("▁▁▁▁", 0, 4)
	flag := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	m = m.data(2, proto(nil).varint(3, kind).varint(40, 0).varint(41, 1).varint(42, 2).varint(43, math.MaxUint64))
	m = m.data(3, proto(nil).data(1, []byte("identity")).varint(3, flag(dummyPrefix)).varint(4, flag(extraSpaces)))
	return m.varint(99, 7)
}

func TestSentencePieceModel(t *testing.T) {
	tok := fileTokenizer(t, writeFolder(t, map[string]string{
		"tokenizer.model":       string(sentencePiece(2, true, false)),
		"tokenizer_config.json": `{"added_tokens_decoder": {"265": {"content": "<user>", "special": false}, "268": {"content": "<new>", "special": true}}}`,
		"added_tokens.json":     `{"<newer>": 269}`,
	}))
	check(t, tok, "a ab", true, "<s>", "▁a", "▁ab")
	check(t, tok, "<user>a<new>é<newer>", false, "▁", "<user>", "a", "<new>", "▁", "<0xC3>", "<0xA9>", "<newer>")
	if id, ok := tok.TokenID("</s>"); !ok || !tok.IsEOG(id) || !tok.AddsBOS() || tok.Size() != 270 {
		t.Error("special ids")
	}
	// As SentencePiece's own library: user-defined pieces are found in the text with its prefix, and print as spaces.
	check(t, tok, "    a      b", false, "▁▁▁▁", "▁a", "▁▁▁▁", "▁▁", "b")
	ids, err := tok.Encode("  a     b", false, true)
	if err != nil || tok.Decode(ids, true) != "  a     b" {
		t.Errorf("ids %v, %v come back as %q", ids, err, tok.Decode(ids, true))
	}
	unigram := fileTokenizer(t, writeFolder(t, map[string]string{"tokenizer.model": string(sentencePiece(1, true, true))}))
	check(t, unigram, "  a   ab ", false, "▁a", "▁a", "b")
	check(t, unigram, "é", false, "▁", "<0xC3>", "<0xA9>")
	whole := sentencePiece(2, true, false)
	for cut := 0; cut < len(whole); cut += 11 { // never a panic; most cuts are errors
		openTokenizer(writeFolder(t, map[string]string{"tokenizer.model": string(whole[:cut])}))
	}
	if _, err := openTokenizer(writeFolder(t, map[string]string{"tokenizer.model": string(sentencePiece(3, true, false))})); !errors.Is(err, tokenizer.ErrVocab) {
		t.Errorf("model type 3: %v", err)
	}
	gap := map[string]string{"tokenizer.model": string(whole), "added_tokens.json": `{"<far>": 5000}`}
	if _, err := openTokenizer(writeFolder(t, gap)); !errors.Is(err, tokenizer.ErrVocab) {
		t.Errorf("gap: %v", err)
	}
}

// slowTiktoken is tiktoken's rule: the neighbouring pair whose joined bytes have
// the lowest rank merges, until none has one.
func slowTiktoken(ranks map[string]int, word string) []int {
	var parts []string
	for i := range len(word) {
		parts = append(parts, word[i:i+1])
	}
	for {
		best, at := math.MaxInt, -1
		for i := 0; i+1 < len(parts); i++ {
			if r, ok := ranks[parts[i]+parts[i+1]]; ok && r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			break
		}
		parts = slices.Concat(parts[:at], []string{parts[at] + parts[at+1]}, parts[at+2:])
	}
	var ids []int
	for _, p := range parts {
		ids = append(ids, ranks[p])
	}
	return ids
}

func TestTiktokenAgainstReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ranks := map[string]int{}
	var tokens []string
	add := func(token string) {
		if _, dup := ranks[token]; !dup {
			ranks[token] = len(tokens)
			tokens = append(tokens, token)
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	letters := []string{"a", "b", "c", "d"}
	for range 80 {
		joined := letters[r.IntN(len(letters))] + letters[r.IntN(len(letters))]
		if len(joined) <= 9 {
			add(joined)
			letters = append(letters, joined)
		}
	}
	var file strings.Builder
	for rank, token := range tokens {
		fmt.Fprintf(&file, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(token)), rank)
	}
	tok := fileTokenizer(t, writeFolder(t, map[string]string{"qwen.tiktoken": file.String()}))
	for range 3000 {
		word := ""
		for range 1 + r.IntN(40) {
			word += string("abcd"[r.IntN(4)])
		}
		ids, err := tok.Encode(word, false, false)
		if want := slowTiktoken(ranks, word); err != nil || !slices.Equal(ids, want) {
			t.Fatalf("%q: got %v, %v; want %v", word, ids, err, want)
		}
	}
	end, ok := tok.TokenID("<|im_end|>")
	if !ok || !tok.IsEOG(end) || end != len(tokens)+2 {
		t.Errorf("<|im_end|> is %d", end)
	}
	ids, err := tok.Encode("<|im_start|>e\u0301", false, true)
	if err != nil || tok.Decode(ids, true) != "<|im_start|>é" { // Qwen composes text first
		t.Errorf("got %q, %v", tok.Decode(ids, true), err)
	}
}
