package engine

import (
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// A single token is computed by functions of its own. The results have the same bits as
// the column functions of longer pieces. Tokens are not padded to whole vectors, and
// memory is read once, in order.

// tokenRows holds the prepared queries and keys of one token of every head. With byHead
// the rows of a head lie together, else the rows of a batch row.
type tokenRows struct {
	e       *Engine
	s       *attention.Shape
	c       *attention.Call
	x       []float // [queries+keys, ld]
	ld      int
	queries int
	keys    int
	byHead  bool // there are as many heads of queries as of keys
}

// place returns the batch row and the head of row i, for the given number of heads.
func (r *tokenRows) place(i, heads int) (b, h int) {
	if r.byHead {
		return i % r.s.B, i / r.s.B
	}
	return i / heads, i % heads
}

// query returns the rows from query head h of batch row b on, h counted over
// the whole batch.
func (r *tokenRows) query(h int) []float { return r.x[h*r.ld:] }

// key returns the row of key head h, counted over the whole batch.
func (r *tokenRows) key(h int) []float { return r.x[(r.queries+h)*r.ld:] }

// tokenRows returns room for n ≤ 1 queries and m ≤ 1 keys of each head of c.
func (e *Engine) tokenRows(ar *arena.Arena, s *attention.Shape, c *attention.Call, n, m int) tokenRows {
	r := tokenRows{e: e, s: s, c: c, ld: e.Spec.Width(s.D), queries: n * s.B * s.H, keys: m * s.B * s.Hkv}
	r.x = arena.Take[float](ar, (r.queries+r.keys)*r.ld)
	return r
}

// prepare sets the rows of key heads lo ≤ i < hi, counted over the whole batch,
// and of the query heads that share them.
func (r *tokenRows) prepare(ar *arena.Arena, lo, hi int) {
	s, c := r.s, r.c
	if r.queries > 0 {
		group := s.H / s.Hkv
		r.fill(ar, lo*group, hi*group)
	}
	if r.keys == 0 {
		return
	}
	r.fill(ar, r.queries+lo, r.queries+hi)
	r.enter(lo, hi)
	for i := lo; i < hi && c.KeyMask != nil; i++ {
		if !c.KeyMask[i/s.Hkv] {
			clear(r.key(i)[:r.ld])
		}
	}
}

// token returns the row that row i is made of, and its factor. Tokens of one
// factor are columns that are normalised together.
func (r *tokenRows) token(i int) (x []float, scale float) {
	s, spec := r.s, &r.e.Spec
	if i < r.queries {
		b, h := r.place(i, s.H)
		q := r.c.Q.Head(b, h)
		scale, _ = spec.Exponent(spec.RowScale(s.D, h))
		return q.Row(0), scale
	}
	b, h := r.place(i-r.queries, s.Hkv)
	k := r.c.K.Head(b, h)
	return k.Row(0), 1
}

// dropoutOf returns what is left out of row i.
func (r *tokenRows) dropoutOf(i int) headtask.HeadDropout {
	s, c := r.s, r.c
	if i < r.queries {
		b, h := r.place(i, s.H)
		p := statePlace(c, b)
		return headtask.NewHeadDropout(c.Drop, &p, false, h, s.H, s.D, 0)
	}
	b, h := r.place(i-r.queries, s.Hkv)
	p := statePlace(c, b)
	return headtask.NewHeadDropout(c.Drop, &p, true, h, s.Hkv, s.D, 0)
}

// fill sets rows i0 ≤ i < i1, all of queries or all of keys.
func (r *tokenRows) fill(ar *arena.Arena, i0, i1 int) {
	d, own, t := r.s.D, &r.e.Spec, kernel.Active[float]()
	mark := ar.Mark()
	defer ar.Reset(mark)
	if r.needsMapOnly(i0) {
		rows := r.x[i0*r.ld : i1*r.ld]
		if x := r.rowsInPlace(i0, i1, rows); own.Map != nil {
			own.Map.Map(rows, x)
		} else {
			copy(rows, x)
		}
		return
	}
	// A row is mapped from room of its own unless the map is elementwise: it may have
	// fewer features than D.
	var room []float
	if !own.IsElementwise() {
		room = arena.Take[float](ar, d)
	}
	unmapped := func(i int) []float {
		if room == nil {
			return r.x[i*r.ld:][:d]
		}
		return room
	}
	if own.Norm == attention.NoNorm {
		for i := i0; i < i1; i++ {
			x, scale := r.token(i)
			row := unmapped(i)
			t.Scale(row, scale, x)
			r.finish(t, ar, i, row)
		}
	} else {
		columns := arena.Take[float](ar, d*kernel.Lanes)
		for i := i0; i < i1; {
			_, scale := r.token(i)
			first := i
			for ; i < i1 && i < first+kernel.Lanes; i++ {
				x, own := r.token(i)
				if own != scale {
					break
				}
				for c, y := range x {
					columns[c*kernel.Lanes+i-first] = y
				}
			}
			headtask.Normalise(t, own.Norm, columns, kernel.Lanes, d, i-first, scale)
			for j := first; j < i; j++ {
				row := unmapped(j)
				for c := range row {
					row[c] = columns[c*kernel.Lanes+j-first]
				}
				r.finish(t, ar, j, row)
			}
		}
	}
	if own.Map != nil && own.IsElementwise() {
		rows := r.x[i0*r.ld : i1*r.ld]
		own.Map.Map(rows, rows)
	}
}

// needsMapOnly reports whether the rows of the kind of row i, queries or keys, need only an
// elementwise map.
func (r *tokenRows) needsMapOnly(i int) bool {
	own := &r.e.Spec
	if own.Norm != attention.NoNorm || !own.IsElementwise() || own.Tau != nil || r.c.Rope != nil || r.c.Drop.IsActive() {
		return false
	}
	scale, _ := own.Exponent(own.RowScale(r.s.D, 0))
	return i >= r.queries || scale == 1
}

// rowsInPlace returns the raw rows i0 ≤ i < i1. If they are not consecutive in memory, it
// copies them to room.
func (r *tokenRows) rowsInPlace(i0, i1 int, room []float) []float {
	x, d := &r.c.Q, r.s.D
	if i0 >= r.queries {
		x, i0, i1 = &r.c.K, i0-r.queries, i1-r.queries
	}
	outer, inner, n := x.SB, x.SH, x.H
	if r.byHead {
		outer, inner, n = x.SH, x.SB, x.B
	}
	if inner == d && (outer == n*d || i0/n == (i1-1)/n) {
		return x.Data[i0/n*outer+i0%n*d:][:(i1-i0)*d]
	}
	for i := i0; i < i1; i++ {
		copy(room[(i-i0)*d:][:d], x.Data[i/n*outer+i%n*inner:])
	}
	return room
}

// finish rotates x [D], the unmapped row i, by the first position of the call,
// leaves out what is lost, and maps it, unless all rows can be mapped at once.
func (r *tokenRows) finish(t *kernel.Table[float], ar *arena.Arena, i int, x []float) {
	d, own := r.s.D, &r.e.Spec
	if rope := r.c.Rope; rope != nil && rope.Half > 0 {
		// Channels are columns of one row each.
		t.Rotate(x, x[rope.Half:], rope.Half, rope.Cos, rope.Sin, rope.Half, 1, rope.Half)
	}
	if r.c.Drop.IsActive() {
		m := r.dropoutOf(i)
		headtask.DropOut(&m, x, 1, 0, d, 0, 1)
	}
	switch {
	case own.Features != nil:
		r.mapToken(ar, i, x)
	case !own.IsElementwise():
		own.Map.Map(r.x[i*r.ld:][:r.ld], x)
	}
}

// mapToken sets row i to the features of x [D].
func (r *tokenRows) mapToken(ar *arena.Arena, i int, x []float) {
	mark := ar.Mark()
	row, s := r.x[i*r.ld:][:r.ld], r.s
	group := s.H / s.Hkv
	b := attention.FeatureBlock{Scratch: arena.Of[float]{Arena: ar}, D: s.D, N: 1, Stride: kernel.Lanes}
	if b.Keys = i >= r.queries; b.Keys {
		_, kh := r.place(i-r.queries, s.Hkv)
		b.First = kh * group
		b.Head = b.First
	} else {
		_, b.Head = r.place(i, s.H)
		b.First = b.Head / group * group
	}
	b.X, b.Y = arena.TakeZeros[float](ar, s.D*b.Stride), arena.Take[float](ar, r.ld*b.Stride)
	for c, y := range x {
		b.X[c*b.Stride] = y
	}
	r.e.Spec.Features.Map(&b)
	for f := range row {
		row[f] = b.Y[f*b.Stride]
	}
	ar.Reset(mark)
}

// enter multiplies the prepared keys lo ≤ i < hi of a token by the factors with
// which they enter.
func (r *tokenRows) enter(lo, hi int) {
	if !r.e.Spec.Gated || !r.c.HasDecay() {
		return
	}
	for i := lo; i < hi; i++ {
		g := r.c.LogG.Head(r.place(i, r.s.Hkv))
		row, by := r.key(i)[:r.ld], float(-math.Expm1(float64(g.Row(0)[0])))
		for f := range row {
			row[f] *= by
		}
	}
}
