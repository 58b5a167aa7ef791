package zoo

import (
	"math/bits"
	"slices"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/tensor"
)

// hashRows is the number of rows that are hashed at a time.
const hashRows = 256

// SignHashes returns a hash of each row x of the head's matrix: bit b is set
// where x lies above plane b, x·planes[b,:D] > planes[b,D]. There are up to 64
// planes, of D+1 numbers each.
func SignHashes(h *headwise.Head, x, planes tensor.Mat) []uint64 {
	hashes := arena.TakeZeros[uint64](h.Scratch, x.Rows)
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	along := h.TakeScratch(min(hashRows, x.Rows), planes.Rows)
	normals := planes
	normals.Cols = x.Cols
	for i0 := 0; i0 < x.Rows; i0 += hashRows {
		i1 := min(i0+hashRows, x.Rows)
		h.Multiply(along.Slice(0, i1-i0), x.Slice(i0, i1), normals, false, true, false)
		for i := i0; i < i1; i++ {
			for b, s := range along.Row(i - i0) {
				if s > planes.Row(b)[x.Cols] {
					hashes[i] |= 1 << b
				}
			}
		}
	}
	return hashes
}

// HammingMeans is k-means of hashes [n] under Hamming's distance. It sets groups [n] to
// the nearest of the means [k], the first of several nearest ones. means holds the
// initial means and is overwritten.
//
// The means move iterations-1 times. Each bit of a mean becomes the majority bit of its
// hashes, 0 at a tie. A mean without hashes stays.
func HammingMeans(ar *arena.Arena, groups []int32, hashes, means []uint64, iterations int) {
	mark := ar.Mark()
	defer ar.Reset(mark)
	members := arena.Take[int32](ar, len(means))
	set := arena.Take[int32](ar, 64*len(means)) // members that have bit b of mean c, at 64·c+b
	for i := range groups {
		groups[i] = -1
	}
	for moved := true; moved && iterations > 0; iterations-- {
		moved = assign(groups, hashes, means)
		if iterations == 1 {
			return
		}
		clear(members)
		clear(set)
		for i, c := range groups {
			members[c]++
			counts := set[64*c:][:64]
			for x := hashes[i]; x != 0; x &= x - 1 {
				counts[bits.TrailingZeros64(x)]++
			}
		}
		for c, n := range members {
			if n == 0 {
				continue
			}
			means[c] = 0
			for b, count := range set[64*c:][:64] {
				if 2*count > n {
					means[c] |= 1 << b
				}
			}
		}
	}
}

// assign sets groups to the nearest means, and reports whether any was another.
func assign(groups []int32, hashes, means []uint64) (moved bool) {
	for i, x := range hashes {
		nearest, least := int32(0), 65
		for c, m := range means {
			if d := bits.OnesCount64(x ^ m); d < least {
				nearest, least = int32(c), d
			}
		}
		moved = moved || groups[i] != nearest
		groups[i] = nearest
	}
	return moved
}

// Largest sets places [k] to the indices of the k largest elements of x [n], in order
// of index. Of equal elements the first are taken. exist [n] selects the elements, nil:
// all; at least k must exist.
func Largest(places []int32, x []tensor.Float, exist []bool) {
	if len(places) == 0 {
		return
	}
	// A heap, whose first place is the one to be given up next.
	before := func(a, b int32) bool { return x[a] < x[b] || x[a] == x[b] && a > b }
	sink := func(at int) {
		for {
			child := 2*at + 1
			if child+1 < len(places) && before(places[child+1], places[child]) {
				child++
			}
			if child >= len(places) || !before(places[child], places[at]) {
				return
			}
			places[at], places[child] = places[child], places[at]
			at = child
		}
	}
	have := 0
	for j := range x {
		if exist != nil && !exist[j] {
			continue
		}
		if have < len(places) {
			places[have] = int32(j)
			if have++; have == len(places) {
				for at := have/2 - 1; at >= 0; at-- {
					sink(at)
				}
			}
		} else if x[j] > x[places[0]] {
			places[0] = int32(j)
			sink(0)
		}
	}
	slices.Sort(places)
}

// AngularBuckets sets buckets [n] to the bucket of each row x of the matrix [n, D]: b if
// the product with row b of axes [r, D] is the largest, r+b if its negative is. Of equal
// products the lowest bucket wins (Kitaev et al. 2020, Reformer, arXiv 2001.04451,
// section 2).
func AngularBuckets(h *headwise.Head, buckets []int32, x, axes tensor.Mat) {
	mark := h.Scratch.Mark()
	defer h.Scratch.Reset(mark)
	along := h.TakeScratch(min(hashRows, x.Rows), axes.Rows)
	for i0 := 0; i0 < x.Rows; i0 += hashRows {
		i1 := min(i0+hashRows, x.Rows)
		h.Multiply(along.Slice(0, i1-i0), x.Slice(i0, i1), axes, false, true, false)
		for i := i0; i < i1; i++ {
			row := along.Row(i - i0)
			most, least := 0, 0
			for b, s := range row {
				if s > row[most] {
					most = b
				}
				if s < row[least] {
					least = b
				}
			}
			if buckets[i] = int32(most); -row[least] > row[most] {
				buckets[i] = int32(len(row) + least)
			}
		}
	}
}
