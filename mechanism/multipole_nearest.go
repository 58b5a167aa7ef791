package mechanism

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/tensor"
)

// nearestCells finds the nearest rows of a codebook.
type nearestCells struct {
	book             tensor.Mat               // [K,D]
	halves           []float                  // [Pad(K)] |c|²/2 of each row; +Inf beyond
	reach            float64                  // the largest |c|
	safe             float64                  // |k| up to which no product is beyond the range of the element type
	bytes            kernel.ByteSearch[float] // with inBytes: the search among the rows
	inBytes          bool
	keys, candidates int // searched in 8 bits, and rows that were compared with them

	// Room for a tile of keys.
	columns    []float // [D][Stride(K)] rows of the book as columns
	products   []float // [nearestRows][nearestColumns]
	best, next []float // [nearestRows·Lanes]
	at         []int32
	sizes      []float // [nearestRows] |k|²
}

const (
	// nearestRows and nearestColumns are the keys and cells of a tile of products, which stays in the
	// first-level cache until it is searched.
	nearestRows, nearestColumns = 24, 256
	// nearestRun is the number of rows whose largest product is compared first.
	nearestRun = 64
	// searchedKeys is the number of keys from which making a search in 8 bits is worth it, and judgedKeys
	// that after which a search goes on with products of numbers if it finds more candidates for a key, on
	// average, than a candidateNumbers-th of the numbers of the book: these are faster then.
	searchedKeys     = 512
	judgedKeys       = 240
	candidateNumbers = 2048
)

// newNearestCells returns the search in a codebook. halves has Pad(K) elements.
func newNearestCells(book tensor.Mat, halves []float) nearestCells {
	s := nearestCells{book: book, halves: halves}
	for c := range s.book.Rows {
		square := sumOfProducts(s.book.Row(c), s.book.Row(c))
		s.halves[c] = float(square / 2)
		s.reach = max(s.reach, math.Sqrt(square))
	}
	for c := s.book.Rows; c < len(halves); c++ {
		halves[c] = float(math.Inf(1))
	}
	most := math.MaxFloat32
	if entry.ElementBytes() == 8 {
		most = 0x1p1000
	}
	if s.reach < math.Sqrt(most)/4 {
		s.safe = most / 4 / max(s.reach, 1)
	}
	return s
}

// withRoom returns s with room for tiles of keys.
func (s nearestCells) withRoom(ar *arena.Arena) nearestCells {
	s.products = arena.Take[float](ar, nearestRows*min(nearestColumns, kernel.Pad(s.book.Rows)))
	s.best, s.next = arena.Take[float](ar, nearestRows*kernel.Lanes), arena.Take[float](ar, nearestRows*kernel.Lanes)
	s.at, s.sizes = arena.Take[int32](ar, nearestRows*kernel.Lanes), arena.Take[float](ar, nearestRows)
	return s
}

// forKeys returns s with what the search for the cells of n keys needs: the rows of the book in 8 bits,
// or as columns.
func (s nearestCells) forKeys(t *kernel.Table[float], ar *arena.Arena, n int) nearestCells {
	if n >= searchedKeys {
		if s.bytes, s.inBytes = kernel.NewByteSearch(t, ar, s.book.Data, s.book.Stride, s.book.Rows, s.book.Cols, s.halves, s.reach); s.inBytes {
			return s
		}
	}
	return s.withColumns(t, ar)
}

// withColumns returns s with the rows of the book as columns.
func (s nearestCells) withColumns(t *kernel.Table[float], ar *arena.Arena) nearestCells {
	d, stride := s.book.Cols, kernel.Stride(s.book.Rows)
	s.columns = arena.TakeZeros[float](ar, d*stride)
	t.Transpose(s.columns, stride, s.book.Data, s.book.Stride, s.book.Rows, d)
	return s
}

// sumOfProducts returns x·y in float64.
func sumOfProducts(x, y []float) (sum float64) {
	for i, v := range x {
		sum += float64(v) * float64(y[i])
	}
	return sum
}

// find sets cells, one for each key, to the row of the book nearest to each of keys, which are at most nearestRows. Rows
// that the rounding of products, or of numbers to 8 bits, cannot tell apart are compared more exactly, in
// the end in float64, so that the result does not depend on how products are computed. Of equal
// distances the first row wins.
func (s *nearestCells) find(t *kernel.Table[float], ar *arena.Arena, cells []int32, keys tensor.Mat) {
	n, d, stride := keys.Rows, s.book.Cols, kernel.Stride(s.book.Rows)
	all := kernel.Pad(s.book.Rows)
	t.RowDots(s.sizes[:n], keys.Data, keys.Stride, keys.Data, keys.Stride, d)
	if s.inBytes {
		for i := 0; i < n; i += kernel.SearchRows { // which divides nearestRows
			m := min(kernel.SearchRows, n-i)
			s.bytes.Set(m, keys.Data[i*keys.Stride:], keys.Stride)
			for r := range m {
				cells[i+r] = s.chooseCandidate(t, ar, r, math.Sqrt(float64(s.sizes[i+r])), keys.Row(i+r))
			}
		}
		if s.keys += n; s.keys >= judgedKeys && s.candidates/s.keys > s.book.Rows*d/candidateNumbers {
			*s = s.withColumns(t, ar)
			s.inBytes = false
		}
		return
	}
	s.clearBest(n)
	for c := 0; c < all; c += nearestColumns {
		width := min(nearestColumns, all-c)
		t.Block(n, width, d, keys.Data, keys.Stride, 1, s.columns[c:], stride, s.products, width, false)
		t.TopTwo(s.products, width, width, s.halves[c:], c, s.best[:n*kernel.Lanes], s.next, s.at)
	}
	for r := range cells {
		cells[r] = s.choose(t, ar, r, keys.Row(r))
	}
}

// findOne returns the nearest row of a key. products has Pad(K) elements.
func (s *nearestCells) findOne(t *kernel.Table[float], ar *arena.Arena, products, key []float) int32 {
	s.clearBest(1)
	t.Dots(products[:s.book.Rows], s.book.Data, s.book.Stride, key)
	clear(products[s.book.Rows:])
	t.TopTwo(products, len(products), len(products), s.halves, 0, s.best[:kernel.Lanes], s.next, s.at)
	s.sizes[0] = t.Dot(key, key)
	return s.choose(t, ar, 0, key)
}

// clearBest starts the search for n keys.
func (s *nearestCells) clearBest(n int) {
	least := float(math.Inf(-1))
	for i := range n * kernel.Lanes {
		s.best[i], s.next[i], s.at[i] = least, least, 0
	}
}

// choose returns the row of the book nearest to key, number r of the tile, given the two largest
// products of each lane.
func (s *nearestCells) choose(t *kernel.Table[float], ar *arena.Arena, r int, key []float) int32 {
	best, next, at := s.best[r*kernel.Lanes:][:kernel.Lanes], s.next[r*kernel.Lanes:][:kernel.Lanes], s.at[r*kernel.Lanes:][:kernel.Lanes]
	most, second, row := best[0], next[0], at[0]
	for l := 1; l < kernel.Lanes; l++ {
		if best[l] > most {
			second, most, row = most, best[l], at[l]
		} else {
			second = max(second, best[l])
		}
		second = max(second, next[l])
	}
	size := math.Sqrt(float64(s.sizes[r]))
	if size <= s.safe && float64(second) < float64(most)-s.slack(size) {
		return row
	}
	return s.compareAll(t, ar, key)
}

// compareAll returns the nearest row of a key among all.
func (s *nearestCells) compareAll(t *kernel.Table[float], ar *arena.Arena, key []float) int32 {
	mark := ar.Mark()
	defer ar.Reset(mark)
	products := arena.Take[float](ar, s.book.Rows)
	t.Dots(products, s.book.Data, s.book.Stride, key)
	return s.pick(t, arena.Take[float](ar, (s.book.Rows+nearestRun-1)/nearestRun), products, key)
}

// chooseCandidate returns the nearest row of row r of a search in 8 bits, a key of that size.
func (s *nearestCells) chooseCandidate(t *kernel.Table[float], ar *arena.Arena, r int, size float64, key []float) int32 {
	mark := ar.Mark()
	defer ar.Reset(mark)
	rows := s.bytes.Candidates(ar, r, size)
	if len(rows) == 0 || !(size <= s.safe) {
		s.candidates += s.book.Rows
		return s.compareAll(t, ar, key)
	}
	s.candidates += len(rows)
	products := arena.Take[float](ar, len(rows))
	for i, c := range rows {
		products[i] = t.Dot(s.book.Row(int(c)), key) - s.halves[c]
	}
	most := t.Max(products)
	least := float64(most) - s.slack(size)
	best, top, found := int32(-1), 0.0, 0
	for i, c := range rows {
		if products[i] == most {
			best = c
		}
		if float64(products[i]) >= least {
			found++
		}
	}
	if found == 1 {
		return best
	}
	best = -1
	for i, c := range rows {
		if float64(products[i]) < least {
			continue
		}
		row := s.book.Row(int(c))
		if p := sumOfProducts(key, row) - sumOfProducts(row, row)/2; best < 0 || p > top || p == top && c < best {
			best, top = c, p
		}
	}
	return best
}

// slack returns how far rounding may move the difference of two products of a key of length size.
func (s *nearestCells) slack(size float64) float64 {
	return float64(s.book.Cols+4) * 2 * unitRoundoff() * s.reach * (size + s.reach)
}

// pick returns the nearest row of a key, given its products k·c with all rows, which it
// overwrites. peaks has an element for each nearestRun rows.
func (s *nearestCells) pick(t *kernel.Table[float], peaks, products, key []float) int32 {
	t.Axpy(products, -1, s.halves)
	for i := range peaks {
		peaks[i] = t.Max(products[i*nearestRun : min((i+1)*nearestRun, len(products))])
	}
	size := math.Sqrt(float64(t.Dot(key, key)))
	least := float(float64(t.Max(peaks)) - s.slack(size))
	first, found := 0, 0
	eachCandidate(peaks, products, least, func(c int) {
		if found == 0 {
			first = c
		}
		found++
	})
	if found <= 1 {
		return int32(first)
	}
	best, most := first, math.Inf(-1)
	eachCandidate(peaks, products, least, func(c int) {
		row := s.book.Row(c)
		if p := sumOfProducts(key, row) - sumOfProducts(row, row)/2; p > most {
			best, most = c, p
		}
	})
	return int32(best)
}

// eachCandidate calls f with the rows whose products are not less than least.
func eachCandidate(peaks, products []float, least float, f func(c int)) {
	for i, peak := range peaks {
		if peak < least {
			continue
		}
		for c := i * nearestRun; c < min((i+1)*nearestRun, len(products)); c++ {
			if !(products[c] < least) {
				f(c)
			}
		}
	}
}
