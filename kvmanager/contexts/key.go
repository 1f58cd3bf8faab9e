package contexts

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
)

// Key names a record: SHA-256 over tagged fields, each with its length, so that no two sequences of fields give the same bytes.
type Key [sha256.Size]byte

// String is the key in hexadecimal.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Field is a named value of a fingerprint.
type Field struct{ Name, Value string }

// Root is the root of all chains of one fingerprint and salt. The order of the fields counts.
func Root(fields []Field, salt string) Key {
	h := newHasher("terrace.root.v1")
	for _, f := range fields {
		h.text(f.Name)
		h.text(f.Value)
	}
	h.text("salt")
	h.text(salt)
	return h.sum()
}

// Chain is the keys of the whole blocks of a text: key i names the tokens of block i and, through its parent, all before them.
func Chain(root Key, ids []int, blockTokens int) []Key {
	keys := make([]Key, 0, len(ids)/blockTokens)
	for parent := root; len(ids) >= blockTokens; ids = ids[blockTokens:] {
		h := newHasher("terrace.block.v1")
		h.bytes(parent[:])
		h.ids(ids[:blockTokens])
		parent = h.sum()
		keys = append(keys, parent)
	}
	return keys
}

// ContextKey names a whole text that a policy has compressed; root's fingerprint has the policy.
func ContextKey(root Key, ids []int) Key {
	h := newHasher("terrace.context.v1")
	h.bytes(root[:])
	h.ids(ids)
	return h.sum()
}

// PartKey names a part of a compressed context.
func PartKey(context Key, part int) Key {
	h := newHasher("terrace.part.v1")
	h.bytes(context[:])
	h.text(fmt.Sprint(part))
	return h.sum()
}

// hasher hashes fields, each behind its length.
type hasher struct{ hash.Hash }

func newHasher(tag string) hasher {
	h := hasher{sha256.New()}
	h.text(tag)
	return h
}

func (h hasher) bytes(b []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
	h.Write(n[:])
	h.Write(b)
}

func (h hasher) text(s string) { h.bytes([]byte(s)) }

func (h hasher) ids(ids []int) {
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	h.bytes(b)
}

func (h hasher) sum() (k Key) {
	h.Sum(k[:0])
	return k
}
