package exchange

import (
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/kmeans"
	"github.com/farfield-ml/farfield/tensor"
)

const (
	queryRows = 64   // queries whose weights are held at once
	pooled    = 0.02 // weight of the mean of all queries in the mean of a cell, as a part of the mean weight of a cell
)

// cellQueries are sums of the queries that see far keys, by the cells of these keys and weighed as the
// trained model weighs them.
type cellQueries struct {
	book  []float32   // centres [key heads,cells,d]
	cells int         // of a key head
	d     int         // width of a key
	sums  [][]float64 // of each query head [cells,d]
	mass  [][]float64 // of each query head [cells]
}

// queryCounter is a function of whole heads that adds their queries to sums. Its outputs are 0.
type queryCounter struct {
	field
	observer
	scale float64 // 0: 1/√D
	to    *cellQueries
}

func (x *queryCounter) Traits() attention.Traits {
	return attention.Traits{Name: "queries of cells", Positive: true, Causal: true, PlacedQueries: true, PlacedHeads: true}
}

func (x *queryCounter) Setting() string { return "queries of cells" }
func (x *queryCounter) Cost(s attention.Shape) headwise.Cost {
	return headwise.Cost{FLOPs: 2 * float64(s.N) * float64(s.M+x.to.cells) * float64(s.D)}
}

func (x *queryCounter) Forward(h *headwise.Head) {
	clear(h.Out.Data)
	n, m, d, cells := h.Q.Rows, h.K.Rows, h.Q.Cols, x.to.cells
	scale, cell := x.factor(d), x.to.find(h)
	t := kernel.Active[float32]()
	sums, mass := x.to.sums[h.Head], x.to.mass[h.Head]
	part := tensor.Mat{Data: make([]float32, cells*d), Rows: cells, Cols: d, Stride: d}
	for i0 := 0; i0 < n; i0 += queryRows {
		rows := min(queryRows, n-i0)
		mark := h.Scratch.Mark()
		q := h.Q.Slice(i0, i0+rows)
		scores, weights := h.TakeScratch(rows, m), h.TakeScratch(rows, cells)
		clear(weights.Data)
		h.Multiply(scores, q, h.K, false, true, false)
		for i := range rows {
			p, row := i0+i+h.Shift, scores.Row(i)
			for j := range row {
				if row[j] *= scale; h.Causal && j > p || !h.IsUnmasked(j) {
					row[j] = float32(math.Inf(-1))
				}
			}
			all := t.Exp(row, row, t.Max(row))
			for j, w := range row {
				if w > 0 && !x.isNear(p, j, m, h.Causal) {
					weights.Row(i)[cell[j]] += w / all
				}
			}
			for c, w := range weights.Row(i) {
				mass[c] += float64(w)
			}
		}
		h.Multiply(part, weights, q, true, false, false)
		for i, y := range part.Data {
			sums[i] += float64(y)
		}
		h.Scratch.Reset(mark)
	}
}

// factor returns the scale of the scores of rows of width d.
func (x *queryCounter) factor(d int) float32 {
	if x.scale == 0 {
		return float32(1 / math.Sqrt(float64(d)))
	}
	return float32(x.scale)
}

// find returns the cells of the keys of a head.
func (x *cellQueries) find(h *headwise.Head) []int32 {
	m := h.K.Rows
	cell, keys := make([]int32, m), make([]float32, 0, m*x.d)
	for j := range m {
		keys = append(keys, h.K.Row(j)...)
	}
	size := x.cells * x.d
	kmeans.NewSearch(x.cells, x.d).Find(cell, make([]float64, m), keys, x.book[h.KeyHead*size:][:size])
	return cell
}

// tilts returns the mean query of each cell of a layer [key heads,cells,d]: the mean of the queries of all
// heads that share the keys. It is drawn to the mean of all cells, the more the less weight a cell has.
func (x *cellQueries) tilts() []float32 {
	keyHeads := len(x.book) / (x.cells * x.d)
	group, list := len(x.sums)/keyHeads, make([]float32, 0, keyHeads*x.cells*x.d)
	for h := range keyHeads {
		all, sums, mass, total := make([]float64, x.d), make([]float64, x.cells*x.d), make([]float64, x.cells), 0.0
		for g := range group {
			for i, y := range x.sums[h*group+g] {
				sums[i] += y
				all[i%x.d] += y
			}
			for c, y := range x.mass[h*group+g] {
				mass[c] += y
				total += y
			}
		}
		few := pooled * total / float64(x.cells)
		for c := range x.cells {
			for e := range x.d {
				y := 0.0
				if total > 0 {
					y = (sums[c*x.d+e] + few*all[e]/total) / (mass[c] + few)
				}
				list = append(list, float32(y))
			}
		}
	}
	return list
}

// fit finds the queries of the cells of a choice, by the windows of the trained model that it is fitted to.
func (r *run) fit(c Choice) error {
	if !c.Fitted || r.tilts[c.place()] != nil {
		return nil
	}
	counts := map[int]*cellQueries{}
	err := r.eachFitCall(c, "queries of cells", func(i int, _ *attention.Call, to *cellQueries) attention.Mechanism {
		counts[i] = to
		return headwise.New(&queryCounter{field: c.field(), scale: r.scaleNumber(i), to: to})
	})
	if err != nil {
		return err
	}
	tilts := map[int][]float32{}
	for i, x := range counts {
		tilts[i] = x.tilts()
	}
	r.tilts[c.place()] = tilts
	return nil
}

// measureFit measures the same cells without updates and without a fit, and the near field with the far
// field of the mean, which updates train if they are asked for, on all texts.
func (r *run) measureFit(x *Result) error {
	for _, ids := range r.fitTo {
		x.FitTokens += len(ids)
	}
	now, before := r.tilts[x.Choice.place()], r.untuned[x.Choice.place()]
	if before != nil {
		x.Updates = r.Updates
		r.tilts[x.Choice.place()] = before // of the near field, so that it begins as it does without updates
	}
	near, err := r.nearFitted(x.Choice, x.Exchanged)
	r.tilts[x.Choice.place()] = now
	if err != nil {
		return err
	}
	if r.Updates > 0 {
		if r.nearTrained, err = r.tuneNear(x.Choice, near); err != nil {
			return err
		}
	}
	bare := x.Choice
	bare.Fitted = false
	for _, ref := range r.refs {
		q, err := r.evaluate(bare, x.Exchanged, false, ref, math.MaxInt)
		if err != nil {
			return err
		}
		x.Unfitted = append(x.Unfitted, q)
		if before != nil {
			r.tilts[x.Choice.place()] = before
			q, err = r.evaluate(x.Choice, x.Exchanged, false, ref, math.MaxInt)
			r.tilts[x.Choice.place()] = now
			if err != nil {
				return err
			}
			x.Untuned = append(x.Untuned, q)
		}
		if q, err = r.compare(near, ref, math.MaxInt); err != nil {
			return err
		}
		x.NearFitted = append(x.NearFitted, q)
	}
	return nil
}
