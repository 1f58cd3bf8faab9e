package flash

import (
	"iter"
	"slices"
)

// Sparse is a list by group number that may have holes. A number costs the memory of 64 places at most, however large it is: a
// group far behind the others must not make room for all between.
type Sparse[T any] struct{ chunks []chunk[T] }

const chunkPlaces = 64

// chunk is the places from number·chunkPlaces on.
type chunk[T any] struct {
	number int
	places *[chunkPlaces]T
}

// find is where a chunk is, or where it would be.
func (s *Sparse[T]) find(number int) (at int, ok bool) {
	if number < len(s.chunks) && s.chunks[number].number == number { // no holes before it
		return number, true
	}
	return slices.BinarySearchFunc(s.chunks, number, func(c chunk[T], n int) int { return c.number - n })
}

// At is what was set for number i, from 0; the zero value where nothing was.
func (s *Sparse[T]) At(i int) (v T) {
	if at, ok := s.find(i / chunkPlaces); ok {
		return s.chunks[at].places[i%chunkPlaces]
	}
	return v
}

// Set sets number i.
func (s *Sparse[T]) Set(i int, v T) {
	at, ok := s.find(i / chunkPlaces)
	if !ok {
		s.chunks = slices.Insert(s.chunks, at, chunk[T]{i / chunkPlaces, new([chunkPlaces]T)})
	}
	s.chunks[at].places[i%chunkPlaces] = v
}

// All gives the numbers from one on, rising, with what was set for them; zero values may be among them.
func (s *Sparse[T]) All(from int) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		at, _ := s.find(from / chunkPlaces)
		for _, c := range s.chunks[at:] {
			first := c.number * chunkPlaces
			for i := max(from-first, 0); i < chunkPlaces; i++ {
				if !yield(first+i, c.places[i]) {
					return
				}
			}
		}
	}
}

// Cut forgets the numbers from one on.
func (s *Sparse[T]) Cut(from int) {
	at, ok := s.find(from / chunkPlaces)
	if ok && from%chunkPlaces > 0 {
		clear(s.chunks[at].places[from%chunkPlaces:])
		at++
	}
	clear(s.chunks[at:])
	s.chunks = s.chunks[:at]
}
