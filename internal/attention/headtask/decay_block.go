package headtask

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// ageBorder is the distance between the borders that divide decay factors within a
// block of keys.
const ageBorder = 16

// fader computes the decay factors of the weights of a block, or adds their logarithms to the
// scores of an exponential. The factor of a pair is the product of two parts: from the key to a
// border before the query, and from the border to the query. For keys at or after the border it
// is a single exponential. If all keys of a block are before a query, their border is the end
// of the block, so that the first part of each column is computed only once. A factor depends
// only on the two positions.
type fader struct {
	t           *kernel.Table[float]
	log         bool
	border      int     // up to which the factors in column reach
	column, row []float // [nk]; of logarithms a row of ones
	decaySince  []float // [1]
}

func (u *Task) Fader(b *block) (f fader) {
	if b.Decays == nil {
		return f
	}
	f = fader{u.Table, u.Spec.Exp, -1, arena.Take[float](u.Arena, b.nk), nil, arena.Take[float](u.Arena, 1)}
	if f.log {
		f.row = ones(u.Arena, b.nk)
	} else {
		f.row = arena.Take[float](u.Arena, b.nk)
	}
	return f
}

// place returns the position of row r.
func (b *block) place(r int) int {
	if b.places != nil {
		return b.places[r]
	}
	return min(b.rowPlace+r, b.Decays.tokens()-1)
}

// countNear returns the number of visible keys before the border of a row at position at
// that sees n keys. It sets their columns, and returns the sum of log_g from the border
// on.
func (f *fader) countNear(b *block, at, n int) (near int, since float64) {
	border := at &^ (ageBorder - 1)
	if end := b.key + KeyBlock; at >= end && b.nk <= KeyBlock {
		border = end
	}
	if near = min(max(border-b.key, 0), n); near == 0 {
		return 0, 0
	}
	if f.border != border {
		f.border = border
		column, unit := f.column[:min(border-b.key, b.nk)], 1.0
		if f.log {
			unit = b.log
		}
		for c := range column {
			column[c] = float(b.Decays.SumBetween(b.key+c, border-1) * unit)
		}
		if !f.log {
			f.t.Exp(column, column, 0)
		}
	}
	return near, b.Decays.SumBetween(border-1, at)
}

// Factors returns the decay factors of the keys that row r sees by position.
func (f *fader) Factors(b *block, r int) []float {
	row, at := f.row[:b.CountVisible(r)], b.place(r)
	near, since := f.countNear(b, at, len(row))
	if near > 0 {
		f.t.Scale(row[:near], float(math.Exp(since)), f.column)
	}
	for c := near; c < len(row); c++ {
		row[c] = float(math.Inf(-1))
		if b.key+c <= at {
			row[c] = float(b.Decays.SumBetween(b.key+c, at))
		}
	}
	if near < len(row) {
		f.t.Exp(row[near:], row[near:], 0)
	}
	return row
}

// fade sets dst to the weights of row r times its factors. They do not overlap.
func (f *fader) fade(b *block, r int, dst, weights []float) {
	n := b.CountVisible(r)
	near, since := f.countNear(b, b.place(r), n)
	if near < n {
		f.t.Mul(dst[:n], weights, f.Factors(b, r))
		return
	}
	f.decaySince[0] = float(math.Exp(since))
	f.t.Products(dst, n, f.decaySince, f.column[:n], weights, n)
}

// AgeScores adds the log-decays to the scores of rows from r0 on. If since is not nil, it
// leaves out the part that all keys of a row have in common, and sets since to that part, to
// base 2.
func (u *Geometry) AgeScores(f *fader, b *block, r0, rows int, s []float, ld int, since []float) {
	if b.Decays == nil {
		return
	}
	for r := range rows {
		row, at := s[r*ld:][:b.CountVisible(r0+r)], b.place(r0+r)
		near, gone := f.countNear(b, at, len(row))
		f.t.Add(row[:near], row, f.column)
		switch {
		case since != nil && near == len(row):
			since[r] = float(gone * math.Log2E)
			continue
		case since != nil:
			since[r] = 0
		}
		if near > 0 {
			f.decaySince[0] = float(gone * b.log)
			f.t.MulRows(row, f.row, near, near, f.decaySince)
		}
		for c := near; c < len(row); c++ {
			if b.key+c <= at {
				row[c] += float(b.Decays.SumBetween(b.key+c, at) * b.log)
			} else {
				row[c] = float(math.Inf(-1))
			}
		}
	}
}

// sinks returns room for what ageScores leaves out of rows, and for powers less
// that.
func (b *block) sinks(ar *arena.Arena, rows int) (since, less []float) {
	if b.Decays == nil {
		return nil, nil
	}
	return arena.Take[float](ar, rows), arena.Take[float](ar, rows)
}

// subtractDecay returns powers minus since in room; without decay it returns the powers.
func subtractDecay(top, since, room []float) []float {
	if since == nil {
		return top
	}
	for r, x := range top {
		room[r] = x - since[r]
	}
	return room[:len(top)]
}

// sumWeights adds to x.age the sums over rows from r0 on of their weights, the
// rows of w, times x.w.
func (u *Geometry) sumWeights(x *gradient, r0, rows, cols int, w []float, ld int) {
	if x.Age == nil || cols == 0 {
		return
	}
	for r := range rows {
		clear(w[r*ld+cols : r*ld+kernel.Pad(cols)])
	}
	u.Table.Mix(x.Age[:kernel.Pad(cols)], x.w[r0:][:rows], rows, w, ld, nil, 0)
}
