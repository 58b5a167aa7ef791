package kernel

import "github.com/farfield-ml/farfield/internal/arena"

// stripColumns is the number of columns of a strip, the widest panel of Mix.
const stripColumns = 4 * Lanes

// StripScratch is the number of scratch elements that Strips.Multiply needs.
const StripScratch = stripColumns

// Strips is a matrix B [k,n] of packed weights for products of few rows. It is divided into strips of
// columns, stored row by row, so that a product reads memory sequentially.
type Strips[T Float] struct {
	n, k int
	data []T // strips of stripColumns, the last padded to Lanes
}

// NewStrips returns the strips of Bᵀ, where b is stored [n,k] with row stride ldb.
func NewStrips[T Float](t *Table[T], n, k int, b []T, ldb int) Strips[T] {
	s := Strips[T]{n, k, make([]T, Pad(n)*k)}
	arena.AdviseHugePages(s.data)
	for j := 0; j < n; j += stripColumns {
		t.Transpose(s.data[j*k:], s.stripWidth(j), b[j*ldb:], ldb, min(stripColumns, n-j), k)
	}
	return s
}

// stripWidth returns the stored columns of the strip at column j.
func (s *Strips[T]) stripWidth(j int) int { return min(stripColumns, Pad(s.n)-j) }

// Columns returns the number of columns of the matrix.
func (s *Strips[T]) Columns() int { return s.n }

// Count returns the number of strips.
func (s *Strips[T]) Count() int { return (s.n + stripColumns - 1) / stripColumns }

// Multiply computes the columns of strips i0 ≤ i < i1 of C = A·B, or adds them to C when acc is set,
// for C [m,n] and A [m,k] with row strides ldc and lda. The bits equal the bits of Gemm. scratch holds
// StripScratch elements and is overwritten.
func (s *Strips[T]) Multiply(t *Table[T], i0, i1, m int, a []T, lda int, acc bool, c []T, ldc int, scratch []T) {
	step := max(1, passDepth(s.k))
	for j := i0 * stripColumns; j < min(i1*stripColumns, s.n); j += stripColumns {
		b, width := s.data[j*s.k:], s.stripWidth(j)
		cols := min(width, s.n-j)
		for i := range m {
			row := c[i*ldc+j:][:cols]
			if !acc {
				clear(row)
			}
			if cols == width {
				t.Mix(row, a[i*lda:][:s.k], step, b, width, nil, 0)
				continue
			}
			edge := scratch[:width]
			clear(edge[copy(edge, row):])
			t.Mix(edge, a[i*lda:][:s.k], step, b, width, nil, 0)
			copy(row, edge)
		}
	}
}
