package mechanism

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
)

// hedgehogFeatures are the learned features [exp(w·x + b), exp(-w·x - b)] of each head,
// with D rows w, for queries and for keys (Zhang et al. 2024, Hedgehog, arXiv
// 2402.04347, section 4.2). Initially w is the identity and b = 0.
type hedgehogFeatures struct {
	d, heads int
	params   param.Set
	sides    [2]struct{ w, b *param.Param } // of queries, of keys
}

func newHedgehog(r *reader) (*hedgehogFeatures, error) {
	if r.o.Width == 0 {
		return nil, fmt.Errorf("%s: setting map=hedgehog: the width D is not known", r.row.Name)
	}
	f := &hedgehogFeatures{d: r.o.Width, heads: max(r.o.Heads, 1)}
	if err := r.Room("map", f.heads, f.d, f.d); err != nil {
		return nil, err
	}
	for i, side := range []string{"q", "k"} {
		s := &f.sides[i]
		s.w = f.params.New("map."+side+".weight", true, f.heads, f.d, f.d)
		s.b = f.params.New("map."+side+".bias", false, f.heads, f.d)
		for j := range f.heads * f.d {
			s.w.Data[j*f.d+j%f.d] = 1
		}
	}
	return f, nil
}

func (f *hedgehogFeatures) Dim(d int) int { return 2 * d }

func (f *hedgehogFeatures) Params() *param.Set { return &f.params }

func (f *hedgehogFeatures) Constants() *param.Set { return nil }

func (f *hedgehogFeatures) Check(heads, _, d int) error {
	switch {
	case heads != f.heads:
		return fmt.Errorf("map.q.weight: has %d heads, q has %d", f.heads, heads)
	case d != f.d:
		return fmt.Errorf("map.q.weight: is of width %d, q has %d", f.d, d)
	}
	return nil
}

// blockParams returns the rows w [D, D] and the biases [D] of a block, and the index of
// w among the parameters.
func (f *hedgehogFeatures) blockParams(b *attention.FeatureBlock) (w, bias []float, at int) {
	if b.Keys {
		at = 1
	}
	s := &f.sides[at]
	return s.w.Data[b.Head*f.d*f.d:][:f.d*f.d], s.b.Data[b.Head*f.d:][:f.d], 2 * at
}

func (f *hedgehogFeatures) Map(b *attention.FeatureBlock) {
	mark := b.Scratch.Mark()
	f.computeFeatures(b, b.Y)
	b.Scratch.Reset(mark)
}

// computeFeatures sets y [2D, Stride] to the features of a block.
func (f *hedgehogFeatures) computeFeatures(b *attention.FeatureBlock, y []float) {
	table := kernel.Active[float]()
	w, bias, _ := f.blockParams(b)
	u := entry.ProjectTokens(b, w, f.d)
	for r, add := range bias {
		row, plus, minus := u[r*b.Stride:][:b.N], y[r*b.Stride:][:b.N], y[(f.d+r)*b.Stride:][:b.N]
		for c := range row {
			row[c] += add
		}
		table.Scale(minus, -1, row)
		table.Exp(minus, minus, 0)
		table.Exp(plus, row, 0)
	}
}

func (f *hedgehogFeatures) Grad(b *attention.FeatureBlock) {
	table := kernel.Active[float]()
	mark := b.Scratch.Mark()
	defer b.Scratch.Reset(mark)
	y := b.Scratch.Take(f.Dim(f.d) * b.Stride)
	f.computeFeatures(b, y)
	w, _, at := f.blockParams(b)
	dbias := b.DParams[at+1][b.Head*f.d:]
	for r := range f.d {
		plus, minus := b.Y[r*b.Stride:][:b.N], b.Y[(f.d+r)*b.Stride:][:b.N]
		table.Mul(plus, plus, y[r*b.Stride:])
		table.Mul(minus, minus, y[(f.d+r)*b.Stride:])
		table.Axpy(plus, -1, minus)
		dbias[r] += table.Sum(plus)
	}
	entry.ProjectTokensGrad(b, w, f.d, b.Y)
	projectedRowsGrad(b, b.DParams[at][b.Head*f.d*f.d:], f.d, b.Y)
}

// projectedRowsGrad adds to dw [rows, D] the gradient of the rows of projectTokens,
// from the gradient du [rows, Stride] of its result.
func projectedRowsGrad(b *attention.FeatureBlock, dw []float, rows int, du []float) {
	table := kernel.Active[float]()
	mark := b.Scratch.Mark()
	ld := kernel.Pad(b.D)
	x, sum := b.Scratch.Take(b.N*ld), b.Scratch.Take(rows*ld)
	clear(x)
	table.Transpose(x, ld, b.X, b.Stride, b.D, b.N)
	table.Block(rows, ld, b.N, du, b.Stride, 1, x, ld, sum, ld, false)
	for r := range rows {
		row := dw[r*b.D:][:b.D]
		table.Add(row, row, sum[r*ld:])
	}
	b.Scratch.Reset(mark)
}
