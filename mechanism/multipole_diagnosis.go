package mechanism

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
)

// DescribeCells is headwise.Celled. A far key is wild if x = s q·(k-c̄) < -p, where p is the order,
// with tilt x = s (q-r)·(k-c̄). With order 1 its weight is then negative, with order 2 larger than
// that of a key at c̄, although exp(x) is small. Weights of order 0 are never wild.
func (x *multipoleAttention) DescribeCells(h *headwise.Head, wild []float64) (distance float64) {
	defer restorePadding(h, dropPadding(h))
	block, end := floorDiv(h.Shift, x.block), floorDiv(h.Shift+h.Q.Rows-1, x.block)+1
	if x.codebook == nil || !x.hasFar(h, block, end-1) {
		return 0
	}
	rows := arena.Take[float](h.Scratch, h.K.Rows)
	x.findCells(h, rows)
	book, keys, squares := x.book(h.KeyHead, h.KeyHeads), 0.0, 0.0
	for j, row := range rows {
		if row < 0 {
			continue
		}
		keys++
		for a, y := range book.Row(int(row)) {
			off := float64(h.K.Row(j)[a]) - float64(y)
			squares += off * off
		}
	}
	if x.order > 0 {
		x.setWild(wild, h, rows, block, end)
	}
	return math.Sqrt(squares / max(keys, 1))
}

// setWild sets wild to the shares of the weight of each query that lie on wild keys.
func (x *multipoleAttention) setWild(wild []float64, h *headwise.Head, rows []float, block, end int) {
	p := x.open(h, rows, block)
	tilted := func(c int, k []float) float64 { // s r·k of cell c
		if p.sums.mass == 0 {
			return 0
		}
		return sumOfProducts(p.sums.tilts.of(c, len(k)), k)
	}
	centres := make([]float64, p.count) // s q·c̄
	var exponents, factors []float64    // of all weights factor·exp(exponent) of a query
	for ; block < end; block++ {
		p.moveTo(block)
		p.refresh()
		means := p.meanRows()
		i0, i1 := p.queriesOf(block)
		for i := i0; i < i1; i++ {
			q, s := h.Q.Row(i), float64(p.scale)
			for c := range p.used {
				centres[c] = s * sumOfProducts(q, means.Row(c))
			}
			exponents, factors = exponents[:0], factors[:0]
			last := h.K.Rows
			if h.Causal {
				last = min(i+h.Shift+1, last)
			}
			for j := range last {
				if !h.IsUnmasked(j) {
					continue
				}
				score := s * sumOfProducts(q, h.K.Row(j))
				if j < p.first || j >= p.last || !p.isFar(j, p.lo, p.hi) {
					exponents, factors = append(exponents, score), append(factors, 1)
					continue
				}
				c := int(p.cells[j])
				centre, drop := centres[c], tilted(c, h.K.Row(j))-tilted(c, means.Row(c))
				y := score - centre - drop // s (q-r)·(k-c̄)
				factor := 1 + y
				if x.order > 1 {
					factor += y * y / 2
				}
				if y < -float64(x.order) {
					factor = -math.Abs(factor) // marks it
				}
				exponents, factors = append(exponents, centre+drop), append(factors, factor)
			}
			top, sum, all := math.Inf(-1), 0.0, 0.0
			for _, y := range exponents {
				top = max(top, y)
			}
			for a, y := range exponents {
				w := math.Abs(factors[a]) * math.Exp(y-top)
				if all += w; factors[a] < 0 {
					sum += w
				}
			}
			if all > 0 {
				wild[i] = sum / all
			}
		}
	}
}
