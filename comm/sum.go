package comm

import (
	"fmt"
	"slices"
)

// Each rank sums a share of the elements: it receives the share of every rank, adds in
// the order of the ranks, and sends the sums back. For any number of ranks a rank sends
// less than twice the array.

// pieceBytes bounds the bytes that are summed at a time, and so the memory.
const pieceBytes = 1 << 26

// AllReduce sets x [n] on every rank to the sum of x over all ranks. The length must be the
// same on all ranks. It returns an error of the transport.
func AllReduce[T Number](c *Comm, x []T) error {
	if c == nil {
		return nil
	}
	const name = "sum"
	return c.inPieces(name, len(x), sizeOf[T](), func(lo, hi int) error {
		x := x[lo:hi]
		parts, each, err := collectParts(c, name, x)
		if err != nil {
			return err
		}
		own := each[c.Rank()] / sizeOf[T]()
		total := c.totalBuffer(own)
		for r := range c.Size() {
			for i, y := range parts[r*own:][:own] {
				total[i] += float64(y)
			}
		}
		sums := parts[:own]
		for i, y := range total {
			sums[i] = T(y)
		}
		return c.gatherParts(name, bytesOf(x), each, bytesOf(sums))
	})
}

// ExclusiveScan sets x [n] to the sum of x over the ranks before this one, which is 0 on rank
// 0. The length must be the same on all ranks. left, unless nil, holds decay factors
// [ranks][stretches] and must be equal on all ranks: x is divided into stretches of equal
// length, and rank r multiplies each stretch of the sum before it by its factor. The result on
// rank r is y_r, where y₀ = 0 and y_{r+1} = left_r·y_r + x_r. It returns an error if left does
// not fit x and the ranks, and an error of the transport.
func ExclusiveScan[T Number](c *Comm, x []T, left [][]float64) error {
	return scanRanks(c, "prefix", x, left, func(i int) int { return i })
}

// ReverseScan is ExclusiveScan over the ranks after this one. The result is 0 on the last rank,
// and y_{r-1} = left_r·y_r + x_r. It returns the errors of ExclusiveScan.
func ReverseScan[T Number](c *Comm, x []T, left [][]float64) error {
	return scanRanks(c, "suffix", x, left, func(i int) int { return c.Size() - 1 - i })
}

// scanRanks is ExclusiveScan with the ranks in the order of rank.
func scanRanks[T Number](c *Comm, name string, x []T, left [][]float64, rank func(i int) int) error {
	stretch := len(x)
	if left != nil {
		if len(left) != c.Size() {
			return c.wrapError(name, fmt.Errorf("left: has %d ranks, the job %d", len(left), c.Size()))
		}
		for r := range left {
			if n := len(left[r]); n != len(left[0]) || n == 0 && len(x) > 0 || n > 0 && len(x)%n != 0 {
				return c.wrapError(name, fmt.Errorf("left: rank %d has %d stretches, rank 0 has %d, x has %d elements", r, n, len(left[0]), len(x)))
			}
		}
		stretch = len(x) / max(len(left[0]), 1)
	}
	return c.inPieces(name, len(x), sizeOf[T](), func(lo, hi int) error {
		x := x[lo:hi]
		parts, each, err := collectParts(c, name, x)
		if err != nil {
			return err
		}
		first := lo
		for _, n := range each[:c.Rank()] {
			first += n / sizeOf[T]()
		}
		own := each[c.Rank()] / sizeOf[T]()
		total := c.totalBuffer(own)
		for i := range c.Size() {
			r := rank(i)
			for j, y := range parts[r*own:][:own] {
				before := total[j]
				parts[r*own+j] = T(before)
				if left != nil {
					before *= left[r][(first+j)/stretch]
				}
				total[j] = before + float64(y)
			}
		}
		return c.exchangeParts(name, bytesOf(parts), c.equalLengths(1, own*sizeOf[T]()), bytesOf(x), each)
	})
}

// inPieces calls f for ranges of n elements of the given bytes each.
func (c *Comm) inPieces(name string, n, bytes int, f func(lo, hi int) error) error {
	piece := pieceBytes / bytes
	for lo := 0; lo < n; lo += piece {
		if err := f(lo, min(lo+piece, n)); err != nil {
			return err
		}
	}
	return nil
}

// collectParts receives this rank's share of the elements of x from every rank. each
// holds the bytes of the shares.
func collectParts[T Number](c *Comm, name string, x []T) (parts []T, each []int, err error) {
	size, n := c.Size(), sizeOf[T]()
	each = c.equalLengths(0, 0)
	for r := range each {
		each[r] = ((r+1)*len(x)/size - r*len(x)/size) * n
	}
	own := each[c.Rank()]
	words := (size*own + 7) / 8
	c.parts = slices.Grow(c.parts[:0], words)[:words]
	room := bytesOf(c.parts)[:size*own]
	if err := c.exchangeParts(name, bytesOf(x), each, room, c.equalLengths(1, own)); err != nil {
		return nil, nil, err
	}
	return floatsOf[T](room), each, nil
}

// totalBuffer returns n zeros.
func (c *Comm) totalBuffer(n int) []float64 {
	c.total = slices.Grow(c.total[:0], n)[:n]
	clear(c.total)
	return c.total
}
