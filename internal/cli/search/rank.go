package search

import (
	"cmp"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// hit is a row that a query finds.
type hit struct {
	row    int64
	cosine float32
	record []byte // nil: the file has vectors alone
}

// compareHits orders hits by falling cosine, then by row.
func compareHits(a, b hit) int {
	return cmp.Or(cmp.Compare(b.cosine, a.cosine), cmp.Compare(a.row, b.row))
}

// ranking finds the rows that are closest to each query.
type ranking struct {
	queries nn.Linear // of length 1 or 0, [queries,width]
	best    [][]hit   // of each query, the best first
	top     int
	cosines []float32 // [block,queries]
}

// newRanking returns a ranking of the top rows for queries [n·width], which it scales.
func newRanking(queries []float32, width, top int) *ranking {
	n := len(queries) / width
	normalizeRows(queries, width)
	r := &ranking{best: make([][]hit, n), top: top}
	r.queries.W = &param.Param{Name: "queries", Shape: []int{n, width}, Data: queries}
	return r
}

// addRows ranks rows [n·width], which it scales. first is the number of the first one.
func (r *ranking) addRows(rows []float32, first int64, record func(row int) []byte) {
	queries, width := r.queries.W.Shape[0], r.queries.W.Shape[1]
	n := len(rows) / width
	normalizeRows(rows, width)
	r.cosines = slices.Grow(r.cosines[:0], n*queries)[:n*queries]
	r.queries.Forward(tensor.Mat{Data: r.cosines, Rows: n, Cols: queries, Stride: queries},
		tensor.Mat{Data: rows, Rows: n, Cols: width, Stride: width}, false)
	par.RunEach(queries, 4*float64(n)*float64(queries), func(q int) {
		best := r.best[q]
		for i := range n {
			x := hit{row: first + int64(i), cosine: r.cosines[i*queries+q]}
			if len(best) == r.top && compareHits(x, best[r.top-1]) > 0 {
				continue
			}
			x.record = record(i)
			at, _ := slices.BinarySearchFunc(best, x, compareHits)
			best = slices.Insert(best[:min(len(best), r.top-1)], at, x)
		}
		r.best[q] = best
	})
}

// normalizeRows divides rows [n·width] by their lengths. A row of zeros stays.
func normalizeRows(rows []float32, width int) {
	n := len(rows) / width
	const piece = 64
	par.RunEach((n+piece-1)/piece, 4*float64(n)*float64(width), func(part int) {
		for i := piece * part; i < min(n, piece*part+piece); i++ {
			normalizeRow(rows[i*width:][:width])
		}
	})
}

// normalizeRow divides row [width] by its length, unless it is 0.
func normalizeRow(row []float32) {
	sum := 0.0
	for _, x := range row {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return
	}
	scale := 1 / math.Sqrt(sum)
	for i, x := range row {
		row[i] = float32(float64(x) * scale)
	}
}
