package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

const (
	pieceTokens  = 1 << 12 // keys of a piece; the sums of pieces are added in order
	blockTokens  = 1 << 8  // keys of a call, within a piece
	windowPieces = 16      // most pieces of a window
)

// RowBytes returns the number of bytes that ComputeRows needs for each row of a stream of shape
// s: its number, its query, its sums, and the sums of one piece of keys.
func RowBytes(s Shape) int64 { return 16 * (1 + int64(s.B)*int64(s.H)*int64(s.D+s.Dv+1)) }

// RowsBound returns the factor of the error's bound that holds for rows of ComputeRows, with the
// meaning of attention.Plan.Bound; 0: none is derived.
func RowsBound(m attention.Mechanism, s Shape) float64 {
	return m.Plan(attention.Shape{B: s.B, H: s.H, Hkv: s.Hkv, N: 1, M: blockTokens, D: s.D, Dv: s.Dv, Form: attention.Direct}).Bound
}

// ComputeRows computes chosen rows of a stream's output directly from every visible key, and
// returns o [B,H,len(rows),Dv]. Weights are numbers of the element type, and sums over more than
// 256 keys are taken in float64: RowsBound gives the factor of the error's bound. rows holds query
// numbers, counted from 0. A row that sees no key is 0. The time is at most proportional to
// len(rows)·M. memory bounds the bytes for rows and keys (0: DefaultMemory), but all rows and at
// least 4096 keys are held. progress may be nil.
//
// It returns an error if memory is negative, if rows has a number that is no query, if the source is
// a pipe, has a decay or ends early, or if ctx ends. It also returns an error if the mechanism cannot be computed from sums over pieces of
// keys: if it has no linear form, if its weights depend on positions, or if its outputs depend
// on the number of keys or on a floor of the denominator.
func ComputeRows(ctx context.Context, m attention.Mechanism, src Source, causal bool, rows []int64, memory int64, progress func(Progress)) ([]float64, error) {
	s, t := src.Shape(), m.Traits()
	switch {
	case memory < 0:
		return nil, fault.Mark(fault.ErrInput, fmt.Errorf("memory: %d is negative", memory))
	case !t.Linear || t.CausalOnly || t.Banded:
		return nil, fault.Mark(fault.ErrInput, fmt.Errorf("mechanism: %s has no sums of weights that do not depend on places", t.Name))
	case !t.Decay: // which needs such quotients, too
		return nil, fault.Mark(fault.ErrInput, fmt.Errorf("mechanism: outputs of %s have a factor of the number of keys, or a floor; pieces of keys do not add up to them", m.Setting()))
	case src.IsSequential():
		return nil, fault.Mark(fault.ErrInput, fmt.Errorf("input: a pipe cannot be read again"))
	case src.HasDecay():
		return nil, fault.Mark(fault.ErrInput, fmt.Errorf("log_g: rows are computed directly without decay alone"))
	}
	d := &rowsCall{m: m, src: src, shape: s}
	for _, i := range rows {
		if i < 0 || i >= s.N {
			return nil, fault.Mark(fault.ErrInput, fmt.Errorf("rows: %d is not from 0 to %d", i, s.N-1))
		}
		sees := s.M
		if causal {
			sees = i + 1 + s.M - s.N
		}
		d.keyCounts = append(d.keyCounts, sees)
	}
	if err := d.readQueries(ctx, rows); err != nil {
		return nil, err
	}
	d.sums = d.newSums(len(rows))
	most := int64(0)
	for _, n := range d.keyCounts {
		most = max(most, n)
	}
	if most == 0 {
		return d.sums.o, nil
	}
	if err := d.measureEps(); err != nil {
		return nil, err
	}
	window := d.chooseWindow(memory)
	w := src.NewWindow(int(min(window, most)), Keys)
	for at := int64(0); at < most; at += window {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := int(min(window, most-at))
		if got, err := src.FillWindow(w, 0, at, n); err != nil {
			return nil, err
		} else if got < n {
			return nil, fault.Mark(fault.ErrInput, fmt.Errorf("input: ends after %d of %d tokens", at+int64(got), s.M))
		}
		if err := d.addWindow(ctx, w, at, n); err != nil {
			return nil, err
		}
		if progress != nil {
			progress(Progress{DoneTokens: at + int64(n), TotalTokens: most})
		}
	}
	for i, den := range d.sums.den {
		if den != 0 {
			den += d.eps
		}
		row := d.sums.row(i)
		for c := range row {
			if den != 0 { // 0: no visible key
				row[c] /= den
			}
		}
	}
	return d.sums.o, nil
}

// rowsCall is a call of ComputeRows.
type rowsCall struct {
	m         attention.Mechanism
	src       Source
	shape     Shape
	q         tensor.Heads
	keyCounts []int64 // number of visible keys of each row
	sums      rowSums // of all rows
	eps       float64 // added to a denominator, however many keys it has
}

// rowSums holds the sums of some rows over some keys.
type rowSums struct {
	o   []float64 // [B,H,rows,Dv] of weights times values
	den []float64 // [B,H,rows] of weights
	dv  int
}

func (d *rowsCall) newSums(rows int) rowSums {
	n := d.shape.B * d.shape.H * rows
	return rowSums{make([]float64, n*d.shape.Dv), make([]float64, n), d.shape.Dv}
}

// row returns the sums of weights times values of row i of all heads.
func (s *rowSums) row(i int) []float64 { return s.o[i*s.dv:][:s.dv] }

// add adds the sums of row i of x to row at.
func (s *rowSums) add(at int, x *rowSums, i int) {
	s.den[at] += x.den[i]
	for c, o := range x.row(i) {
		s.o[at*s.dv+c] += o
	}
}

// measureEps sets eps, by which the denominator of a key differs from half of the denominator of two
// such keys. Beside a large weight eps is rounded away, so that of several keys the one with the
// least denominator counts.
func (d *rowsCall) measureEps() error {
	least := math.Inf(1)
	for i, level := range []tensor.Float{0, -10, -20} {
		one, err := d.denominator(1, level)
		two := 0.0
		if err == nil {
			two, err = d.denominator(2, level)
		}
		switch {
		case err == nil && math.Abs(two) < least:
			least, d.eps = math.Abs(two), 2*one-two
		case err != nil && i == 0: // other levels may be out of range
			return fault.Mark(fault.ErrInput, err)
		}
	}
	return nil
}

// denominator returns the denominator of a query beside n keys, all of the number level.
func (d *rowsCall) denominator(n int, level tensor.Float) (float64, error) {
	s := d.shape
	c := &attention.Call{
		Q: tensor.NewHeads(1, s.H, 1, s.D), K: tensor.NewHeads(1, s.Hkv, n, s.D), V: tensor.NewHeads(1, s.Hkv, n, s.Dv), Form: attention.Direct,
	}
	for _, x := range [][]tensor.Float{c.Q.Data, c.K.Data} {
		for i := range x {
			x[i] = level
		}
	}
	keep := &attention.Saved{}
	if err := d.m.Forward(tensor.NewHeads(1, s.H, 1, s.Dv), c, keep); err != nil {
		return 0, err
	}
	return float64(keep.Den[0]), nil
}

// chooseWindow returns the keys of a window, in whole pieces, from the memory beside the rows.
func (d *rowsCall) chooseWindow(memory int64) int64 {
	if memory == 0 {
		memory = DefaultMemory
	}
	rows := int64(len(d.keyCounts)) * RowBytes(d.shape)
	key := d.src.NewWindow(1, Keys).memoryBytes()
	return pieceTokens * max(1, min((memory-rows)/(pieceTokens*key+rows), windowPieces))
}

// readQueries reads the chosen queries. It returns the error of ctx if it ends.
func (d *rowsCall) readQueries(ctx context.Context, rows []int64) error {
	s := d.shape
	if len(rows) == 0 {
		return nil
	}
	d.q = tensor.NewHeads(s.B, s.H, len(rows), s.D)
	w := d.src.NewWindow(1, Queries)
	for j, i := range rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		if got, err := d.src.FillWindow(w, i, 0, 1); err != nil {
			return err
		} else if got < 1 {
			return fault.Mark(fault.ErrInput, fmt.Errorf("input: ends before query %d of %d", i, s.N))
		}
		for h := range s.B * s.H {
			copy(d.q.Head(h/s.H, h%s.H).Row(j), w.Call.Q.Head(h/s.H, h%s.H).Row(0))
		}
	}
	return nil
}

// partialRows holds the contribution of some keys to some rows.
type partialRows struct {
	rows []int
	rowSums
}

// addWindow adds the weighted values of the n keys of w, beginning with key at.
// Pieces are computed concurrently and added in order. It returns the error of ctx if it ends.
func (d *rowsCall) addWindow(ctx context.Context, w *Window, at int64, n int) error {
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
		return fault.Mark(fault.ErrInput, err)
	}
	for _, x := range slices.Concat(made...) {
		for i := range x.den {
			head, r := i/len(x.rows), x.rows[i%len(x.rows)]
			d.sums.add(head*len(d.keyCounts)+r, &x.rowSums, i)
		}
	}
	return nil
}

// computePiece computes the rows that see keys j0 ≤ j < j1 of w: rows that see all of
// them together, the others one by one.
func (d *rowsCall) computePiece(w *Window, at int64, j0, j1 int) (list []partialRows, err error) {
	var all []int
	part := func(rows []int, n int) {
		x := partialRows{rows, d.newSums(len(rows))}
		for i := 0; i < n && err == nil; i += blockTokens {
			err = d.addBlock(&x, w, j0+i, j0+min(i+blockTokens, n))
		}
		list = append(list, x)
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

// addBlock adds the keys j0 ≤ j < j1 of w to the rows of x.
func (d *rowsCall) addBlock(x *partialRows, w *Window, j0, j1 int) error {
	s := d.shape
	c := &attention.Call{K: w.Call.K.Tokens(j0, j1), V: w.Call.V.Tokens(j0, j1), Form: attention.Direct}
	c.Q = tensor.NewHeads(s.B, s.H, len(x.rows), s.D)
	for b := range s.B {
		for h := range s.H {
			for i, r := range x.rows {
				copy(c.Q.Head(b, h).Row(i), d.q.Head(b, h).Row(r))
			}
		}
		if mask := w.Call.KeyMask; mask != nil {
			c.KeyMask = append(c.KeyMask, mask[b*w.Call.K.N:][j0:j1]...)
		}
	}
	out, keep := tensor.NewHeads(s.B, s.H, len(x.rows), s.Dv), &attention.Saved{}
	if err := d.m.Forward(out, c, keep); err != nil {
		return err
	}
	for i, y := range keep.Den {
		den := float64(y)
		if den == 0 { // no key is visible, and no eps counts
			continue
		}
		x.den[i] += den - d.eps
		for c, o := range out.Data[i*s.Dv:][:s.Dv] {
			x.o[i*s.Dv+c] += den * float64(o)
		}
	}
	return nil
}
