// Package kmeans makes centres of rows by k-means, and finds the nearest centres of rows. Results
// depend on the rows, the centres and the random key alone, not on the number of threads.
package kmeans

import (
	"context"
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/rng"
)

const (
	lloydSteps = 10
	tileRows   = 96 // keys whose products with all centres are computed at once
)

// Centres returns cells centres [cells,d] of keys [n,d] by k-means: seeds by k-means++ (Arthur and
// Vassilvitskii 2007), then Lloyd steps. A cell that loses all its keys gets the key that is farthest
// from its centre. cells is at most n. Centres returns an error only if ctx ends.
func Centres(ctx context.Context, keys []float32, d, cells int, key rng.Key) ([]float32, error) {
	n := len(keys) / d
	centres := make([]float32, cells*d)
	if err := seedCentres(ctx, centres, keys, d, key); err != nil {
		return nil, err
	}
	s := NewSearch(cells, d)
	cell, distance := make([]int32, n), make([]float64, n)
	sums, counts := make([]float64, cells*d), make([]int, cells)
	for range lloydSteps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.Find(cell, distance, keys, centres)
		clear(sums)
		clear(counts)
		for j, c := range cell {
			counts[c]++
			for e, x := range keys[j*d:][:d] {
				sums[int(c)*d+e] += float64(x)
			}
		}
		for c, m := range counts {
			if m == 0 {
				far := 0
				for j, x := range distance {
					if x > distance[far] {
						far = j
					}
				}
				copy(centres[c*d:][:d], keys[far*d:][:d])
				distance[far] = 0
				continue
			}
			for e := range d {
				centres[c*d+e] = float32(sums[c*d+e] / float64(m))
			}
		}
	}
	return centres, nil
}

// seedCentres sets centres to keys, each drawn in proportion to its squared distance from those before.
func seedCentres(ctx context.Context, centres, keys []float32, d int, key rng.Key) error {
	t := kernel.Active[float32]()
	n, cells := len(keys)/d, len(centres)/d
	least := make([]float64, n)
	squares := make([]float32, n)
	for j := range n {
		row := keys[j*d:][:d]
		squares[j] = t.Dot(row, row)
		least[j] = math.Inf(1)
	}
	chosen := key.Intn(0, n)
	for c := range cells {
		if err := ctx.Err(); err != nil {
			return err
		}
		centre := centres[c*d:][:d]
		copy(centre, keys[chosen*d:][:d])
		var sum float64
		for j := range n {
			x := float64(squares[j]) + float64(squares[chosen]) - 2*float64(t.Dot(keys[j*d:][:d], centre))
			if x = max(x, 0); x < least[j] {
				least[j] = x
			}
			sum += least[j]
		}
		at := key.Float64(uint64(c)+1) * sum
		chosen = key.Intn(uint64(c)+1, n) // where all keys are centres
		for j, x := range least {
			if at -= x; at < 0 {
				chosen = j
				break
			}
		}
	}
	return nil
}

// Search finds the nearest centres of keys.
type Search struct {
	cells, d, width            int
	columns, products, squares []float32 // centres [d,width], products [tileRows,width], |c|²/2 [cells]
}

// NewSearch returns a Search among cells centres of width d.
func NewSearch(cells, d int) *Search {
	width := kernel.Pad(cells)
	return &Search{cells: cells, d: d, width: width, columns: make([]float32, d*width), products: make([]float32, tileRows*width), squares: make([]float32, cells)}
}

// Find sets cell to the number of the centre nearest to each key, the lower one on a tie, and distance
// to their squared distance.
func (s *Search) Find(cell []int32, distance []float64, keys, centres []float32) {
	t := kernel.Active[float32]()
	t.Transpose(s.columns, s.width, centres, s.d, s.cells, s.d)
	for c := range s.cells {
		row := centres[c*s.d:][:s.d]
		s.squares[c] = t.Dot(row, row) / 2
	}
	n := len(keys) / s.d
	for j0 := 0; j0 < n; j0 += tileRows {
		rows := min(tileRows, n-j0)
		t.Block(rows, s.width, s.d, keys[j0*s.d:], s.d, 1, s.columns, s.width, s.products, s.width, false)
		for r := range rows {
			products := s.products[r*s.width:][:s.cells]
			t.Axpy(products, -1, s.squares)
			most, best := t.Max(products), 0
			for c, x := range products {
				if x == most {
					best = c
					break
				}
			}
			row := keys[(j0+r)*s.d:][:s.d]
			cell[j0+r], distance[j0+r] = int32(best), max(float64(t.Dot(row, row))-2*float64(most), 0)
		}
	}
}

// RootMeanDistance returns the root mean square of the distances of keys from their nearest centres.
func RootMeanDistance(keys, centres []float32, d int) float64 {
	n := len(keys) / d
	if n == 0 {
		return 0
	}
	s := NewSearch(len(centres)/d, d)
	cell, distance := make([]int32, n), make([]float64, n)
	s.Find(cell, distance, keys, centres)
	var sum float64
	for _, x := range distance {
		sum += x
	}
	return math.Sqrt(sum / float64(n))
}
