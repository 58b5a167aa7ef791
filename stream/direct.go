package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

const (
	pieceTokens  = 1 << 12 // keys of a piece; the sums of pieces are added in order
	windowPieces = 16      // most pieces of a window
)

// RowBytes returns the number of bytes that ComputeRows needs for each row of a stream of shape
// s: its number, its query, its sums, and the sums of one piece of keys.
func RowBytes(s Shape) int64 { return 16 * (1 + int64(s.B)*int64(s.H)*int64(s.D+s.Dv+1)) }

// ComputeRows computes chosen rows of a stream's output in float64, directly from every visible
// key, and returns o [B,H,len(rows),Dv]. rows holds query numbers, counted from 0. The time is
// proportional to len(rows)·M. memory bounds the bytes for rows and keys (0: DefaultMemory),
// but at least 4096 keys are held at a time. progress may be nil.
//
// It returns an error if memory is negative, if the source is a pipe or has a decay, or if ctx
// ends. It also returns an error if the mechanism cannot be computed from sums over pieces of
// keys: if it has no linear form, if its weights depend on positions, or if its outputs depend
// on the number of keys or on a floor of the denominator.
func ComputeRows[T tensor.Float](ctx context.Context, m attention.Mechanism[float64], src Source[T], causal bool, rows []int64, memory int64, progress func(Progress)) (tensor.Heads[float64], error) {
	var none tensor.Heads[float64]
	s, t := src.Shape(), m.Traits()
	switch {
	case memory < 0:
		return none, &BadInput{fmt.Errorf("memory: %d is negative", memory)}
	case !t.Linear || t.CausalOnly || t.Banded:
		return none, &BadInput{fmt.Errorf("mechanism: %s has no sums of weights that do not depend on places", t.Name)}
	case !t.Decay: // which needs such quotients, too
		return none, &BadInput{fmt.Errorf("mechanism: outputs of %s have a factor of the number of keys, or a floor; pieces of keys do not add up to them", m.Setting())}
	case src.IsSequential():
		return none, &BadInput{fmt.Errorf("input: a pipe cannot be read again")}
	case src.HasDecay():
		return none, &BadInput{fmt.Errorf("log_g: rows are computed directly without decay alone")}
	}
	d := &rowsCall[T]{m: m, src: src, shape: s}
	for _, i := range rows {
		if i < 0 || i >= s.N {
			return none, &BadInput{fmt.Errorf("rows: %d is not from 0 to %d", i, s.N-1)}
		}
		sees := s.M
		if causal {
			sees = i + 1 + s.M - s.N
		}
		d.keyCounts = append(d.keyCounts, sees)
	}
	if err := d.readQueries(ctx, rows); err != nil {
		return none, err
	}
	d.o, d.den = tensor.NewHeads[float64](s.B, s.H, len(rows), s.Dv), make([]float64, s.B*s.H*len(rows))
	most := int64(0)
	for _, n := range d.keyCounts {
		most = max(most, n)
	}
	if most == 0 {
		return d.o, nil
	}
	if err := d.measureEps(); err != nil {
		return none, err
	}
	window := d.chooseWindow(memory)
	w := src.NewWindow(int(min(window, most)), Keys)
	for at := int64(0); at < most; at += window {
		if err := ctx.Err(); err != nil {
			return none, err
		}
		n := int(min(window, most-at))
		if got, err := src.FillWindow(w, 0, at, n); err != nil {
			return none, err
		} else if got < n {
			return none, &BadInput{fmt.Errorf("input: ends after %d of %d tokens", at+int64(got), s.M)}
		}
		if err := d.addWindow(ctx, w, at, n); err != nil {
			return none, err
		}
		if progress != nil {
			progress(Progress{DoneTokens: at + int64(n), TotalTokens: most})
		}
	}
	for i, den := range d.den {
		if den != 0 {
			den += d.eps
		}
		row := d.o.Head(i/len(rows)/s.H, i/len(rows)%s.H).Row(i % len(rows))
		for c := range row {
			if den != 0 { // 0: no visible key
				row[c] /= den
			}
		}
	}
	return d.o, nil
}

// rowsCall is a call of ComputeRows.
type rowsCall[T tensor.Float] struct {
	m         attention.Mechanism[float64]
	src       Source[T]
	shape     Shape
	q         tensor.Heads[float64]
	keyCounts []int64               // number of visible keys of each row
	o         tensor.Heads[float64] // sums of weights times values
	den       []float64             // sums of weights
	eps       float64               // added to a denominator, however many keys it has
}

// measureEps sets eps, by which the denominator of a key differs from half of the
// denominator of two such keys.
func (d *rowsCall[T]) measureEps() error {
	s := d.shape
	var den [2]float64
	for i := range den {
		c := &attention.Call[float64]{
			Q: tensor.NewHeads[float64](1, s.H, 1, s.D), K: tensor.NewHeads[float64](1, s.Hkv, i+1, s.D), V: tensor.NewHeads[float64](1, s.Hkv, i+1, s.Dv), Form: attention.Direct,
		}
		keep := &attention.Saved[float64]{}
		if err := d.m.Forward(tensor.NewHeads[float64](1, s.H, 1, s.Dv), c, keep); err != nil {
			return &BadInput{err}
		}
		den[i] = keep.Den[0]
	}
	d.eps = 2*den[0] - den[1]
	return nil
}

// chooseWindow returns the keys of a window, in whole pieces, from the memory beside the rows.
func (d *rowsCall[T]) chooseWindow(memory int64) int64 {
	if memory == 0 {
		memory = DefaultMemory
	}
	s, rows := d.shape, int64(len(d.keyCounts))*RowBytes(d.shape)
	key := d.src.NewWindow(1, Keys).memoryBytes() + 8*int64(s.B)*int64(s.Hkv)*int64(s.D+s.Dv) // as read, and in float64
	return pieceTokens * max(1, min((memory-rows)/(pieceTokens*key+rows), windowPieces))
}

// readQueries reads the chosen queries. It returns the error of ctx if it ends.
func (d *rowsCall[T]) readQueries(ctx context.Context, rows []int64) error {
	s := d.shape
	if len(rows) == 0 {
		return nil
	}
	d.q = tensor.NewHeads[float64](s.B, s.H, len(rows), s.D)
	w := d.src.NewWindow(1, Queries)
	for j, i := range rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		if got, err := d.src.FillWindow(w, i, 0, 1); err != nil {
			return err
		} else if got < 1 {
			return &BadInput{fmt.Errorf("input: ends before query %d of %d", i, s.N)}
		}
		for h := range s.B * s.H {
			widenRow(d.q.Head(h/s.H, h%s.H).Row(j), w.Call.Q.Head(h/s.H, h%s.H).Row(0))
		}
	}
	return nil
}

// partialRows holds the contribution of some keys to some rows.
type partialRows struct {
	rows []int
	o    tensor.Heads[float64] // [B,H,len(rows),Dv]
	den  []float64             // [B,H,len(rows)]
}

// addWindow adds the weighted values of the n keys of w, beginning with key at.
// Pieces are computed concurrently and added in order. It returns the error of ctx if it ends.
func (d *rowsCall[T]) addWindow(ctx context.Context, w *Window[T], at int64, n int) error {
	s := d.shape
	pieces := (n + pieceTokens - 1) / pieceTokens
	made, errs := make([][]partialRows, pieces), make([]error, pieces)
	par.RunEach(pieces, 2*float64(len(d.keyCounts)*s.B*s.H)*float64(n)*float64(s.D+s.Dv), func(i int) {
		if ctx.Err() != nil {
			return
		}
		j0, j1 := i*pieceTokens, min((i+1)*pieceTokens, n)
		made[i], errs[i] = d.computePiece(w, at, j0, j1)
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := errors.Join(errs...); err != nil {
		return &BadInput{err}
	}
	for _, x := range slices.Concat(made...) {
		for i, den := range x.den {
			if den == 0 { // no key is visible, and no eps counts
				continue
			}
			head, r := i/len(x.rows), x.rows[i%len(x.rows)]
			d.den[head*len(d.keyCounts)+r] += den - d.eps
			sum := d.o.Head(head/s.H, head%s.H).Row(r)
			for c, o := range x.o.Head(head/s.H, head%s.H).Row(i % len(x.rows)) {
				sum[c] += den * o
			}
		}
	}
	return nil
}

// computePiece computes the rows that see keys j0 ≤ j < j1 of w: rows that see all of
// them in one call, the others one by one.
func (d *rowsCall[T]) computePiece(w *Window[T], at int64, j0, j1 int) (list []partialRows, err error) {
	k, v := widenHeads(w.Call.K.Tokens(j0, j1)), widenHeads(w.Call.V.Tokens(j0, j1))
	var all []int
	part := func(rows []int, n int) {
		c := &attention.Call[float64]{K: k.Tokens(0, n), V: v.Tokens(0, n), Form: attention.Direct}
		c.Q = tensor.NewHeads[float64](d.shape.B, d.shape.H, len(rows), d.shape.D)
		for h := range d.shape.B * d.shape.H {
			b, h := h/d.shape.H, h%d.shape.H
			for i, r := range rows {
				copy(c.Q.Head(b, h).Row(i), d.q.Head(b, h).Row(r))
			}
			if mask := w.Call.KeyMask; mask != nil && h == 0 {
				c.KeyMask = append(c.KeyMask, mask[b*w.Call.K.N:][j0:j0+n]...)
			}
		}
		o := tensor.NewHeads[float64](d.shape.B, d.shape.H, len(rows), d.shape.Dv)
		keep := &attention.Saved[float64]{}
		if err == nil {
			err = d.m.Forward(o, c, keep)
		}
		list = append(list, partialRows{rows, o, keep.Den})
	}
	for r, sees := range d.keyCounts {
		switch n := min(sees-at-int64(j0), int64(j1-j0)); {
		case n == int64(j1-j0):
			all = append(all, r)
		case n > 0:
			part([]int{r}, int(n))
		}
	}
	if len(all) > 0 {
		part(all, j1-j0)
	}
	return list, err
}

// widenHeads returns x in float64.
func widenHeads[T tensor.Float](x tensor.Heads[T]) tensor.Heads[float64] {
	y := tensor.NewHeads[float64](x.B, x.H, x.N, x.D)
	for i := range x.B * x.H {
		for j := range x.N {
			widenRow(y.Head(i/x.H, i%x.H).Row(j), x.Head(i/x.H, i%x.H).Row(j))
		}
	}
	return y
}

// widenRow overwrites dst [n] with x [n] in float64.
func widenRow[T tensor.Float](dst []float64, x []T) {
	for c, y := range x {
		dst[c] = float64(y)
	}
}
