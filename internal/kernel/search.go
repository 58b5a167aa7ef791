package kernel

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
)

const (
	// SearchRows is the number of rows that a ByteSearch takes at once.
	SearchRows = 12
	// maxSearch is the largest width of the rows of a ByteSearch, whose products are exact as float32.
	maxSearch = 1024
)

// byteSearch has the routines of a ByteSearch of one instruction set.
type byteSearch[T Float] struct {
	largest  func(x []T) uint32
	quantise func(dst []int8, x []T, factor T) (sum int32)
	peaks    func(panels, groups int, a []int8, ars int, b []uint8, scales []T, sums []int32, bias, peaks []T, prs int)
	places   func(dst []int32, x []T, least T) int
}

// ByteSearch looks among rows c of a matrix [n,d], each with a number h, for those where x·c - h may be
// largest, from products of 8 bits. An exact search has to compare what it finds.
type ByteSearch[T Float] struct {
	t      *Table[T]
	n, d   int
	panels []uint8
	bias   []T     // -h, and -Inf up to a multiple of the columns of a panel
	scale  T       // of all rows
	reach  float64 // the largest |c|
	off    float64 // how far a row may lie from its integers

	// Of the rows that Set was given.
	data   []int8
	scales []T
	sums   []int32
	peaks  []T // [SearchRows][Stride(half the columns of the panels)]
}

// NewByteSearch returns a search among n rows c of length d, of which |c| is at most reach, in memory of
// ar. ok is false if the instruction set has no fast products of 8 bits, d is 0 or above maxSearch, or the
// numbers are too large or too small for them.
func NewByteSearch[T Float](t *Table[T], ar *arena.Arena, c []T, stride, n, d int, h []T, reach float64) (s ByteSearch[T], ok bool) {
	if t.search == nil || d == 0 || d > maxSearch || !(reach > 0x1p-40) || !(reach < 0x1p40) {
		return s, false
	}
	width, groups := padTo(n, byteColumns), padTo(d, byteGroup)/byteGroup
	s = ByteSearch[T]{t: t, n: n, d: d, panels: arena.Take[uint8](ar, width*groups*byteGroup), bias: arena.Take[T](ar, width), reach: reach}
	var most uint32
	for j := range n {
		most = max(most, t.search.largest(c[j*stride:][:d]))
	}
	factor, scale := byteScale(most)
	s.scale, s.off = T(scale), rowOff(scale, d)
	row := arena.Take[int8](ar, ByteStride(d))
	for j := range width {
		to := s.panels[j/byteColumns*byteColumns*groups*byteGroup+j%byteColumns*byteGroup:]
		if j < n {
			s.bias[j] = -h[j]
			t.search.quantise(row, c[j*stride:][:d], T(factor))
		} else {
			s.bias[j] = T(math.Inf(-1))
			clear(row)
		}
		for g := range groups {
			x, y := row[g*byteGroup:][:byteGroup], to[g*byteGroup*byteColumns:][:byteGroup]
			y[0], y[1], y[2], y[3] = uint8(x[0])^weightOffset, uint8(x[1])^weightOffset, uint8(x[2])^weightOffset, uint8(x[3])^weightOffset
		}
	}
	s.data, s.scales, s.sums = arena.Take[int8](ar, SearchRows*ByteStride(d)), arena.Take[T](ar, SearchRows), arena.Take[int32](ar, SearchRows)
	s.peaks = arena.Take[T](ar, SearchRows*Stride(width/2))
	return s, true
}

// rowOff returns how far d numbers may lie from integers times scale: half a step each, and rounding.
func rowOff(scale float32, d int) float64 { return 0.5001 * float64(scale) * math.Sqrt(float64(d)) }

// Set computes the products of m rows x, SearchRows at most, which lie xrs apart.
func (s *ByteSearch[T]) Set(m int, x []T, xrs int) {
	stride := ByteStride(s.d)
	for i := range SearchRows {
		s.scales[i], s.sums[i] = 0, 0
		if i < m {
			row := x[i*xrs:][:s.d]
			factor, scale := byteScale(s.t.search.largest(row))
			sum := s.t.search.quantise(s.data[i*stride:][:stride], row, T(factor))
			s.scales[i], s.sums[i] = T(scale), -weightOffset*sum
		} else {
			clear(s.data[i*stride:][:stride])
		}
		s.scales[i] *= s.scale
	}
	width := len(s.bias)
	s.t.search.peaks(width/byteColumns, padTo(s.d, byteGroup)/byteGroup, s.data, stride, s.panels, s.scales, s.sums, s.bias, s.peaks, Stride(width/2))
}

// Candidates returns rows, in no order and in memory of ar, among which are all that may have the largest
// x·c - h, for x number r of those that Set was given and size, its |x|. It returns nil where products of 8 bits do not tell.
func (s *ByteSearch[T]) Candidates(ar *arena.Arena, r int, size float64) []int32 {
	scale := float64(s.scales[r])
	if !(scale > 0x1p-100 && scale < 0x1p60) || !(size < 0x1p40) {
		return nil
	}
	half := len(s.bias) / 2
	row := s.peaks[r*Stride(half):][:half]
	off := rowOff(float32(scale/float64(s.scale)), s.d)
	// What rounding to integers may take from the one product or add to the other, and the rounding of
	// both and of h.
	slack := 2*(off*s.reach+(size+off)*s.off) + 0x1p-20*(size+off+s.reach)*(s.reach+s.off)
	found := arena.Take[int32](ar, 2*half+Lanes)
	count := s.t.search.places(found, row, T(float64(s.t.Max(row))-slack))
	list := arena.Take[int32](ar, 2*count)[:0]
	for _, p := range found[:count] {
		c := p/Lanes*byteColumns + p%Lanes
		if list = append(list, c); int(c)+Lanes < s.n {
			list = append(list, c+Lanes)
		}
	}
	return list
}
