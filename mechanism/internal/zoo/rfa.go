package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
)

// rfaForms holds the floors of denominators in the authors' programs, by name of the
// form.
var rfaForms = map[string]struct {
	floor float64
	size  bool
}{"code": {1, false}, "code-cross": {1, true}, "code-masked": {1e-3, true}}

func RFASpec(r *entry.Reader) (s attention.Spec, err error) {
	d := r.Width
	if d == 0 {
		return s, fmt.Errorf("%s: the width D is not known", r.Name)
	}
	f := rfaProjection{d: d, heads: max(r.Heads, 1), rows: d, normOffset: -1}
	kind, err := r.Choice("kernel", "gaussian", "arccos")
	if err != nil {
		return s, err
	}
	if r.Text("features") != "D" {
		if f.rows, err = r.Integer("features", 1, 1<<14); err != nil {
			return s, err
		}
	}
	if f.tau, err = r.Positive("tau", ""); err != nil {
		return s, err
	}
	norm, err := r.Choice("norm", "unit", "none")
	if err != nil {
		return s, err
	}
	if s.Eps, err = r.Positive("eps", "0"); err != nil {
		return s, err
	}
	if s.Gated, err = r.Bool("gate"); err != nil {
		return s, err
	}
	form, err := r.Choice("form", "paper", "code", "code-cross", "code-masked")
	if err != nil {
		return s, err
	}
	key, err := r.Key()
	if err != nil {
		return s, err
	}
	if err := r.Room("R", f.heads, f.rows, d); err != nil {
		return s, err
	}
	f.featureScale = 1 / math.Sqrt(float64(f.rows))
	if norm == "unit" {
		s.Norm = attention.Unit
	}
	if code, is := rfaForms[form]; is {
		if kind != "gaussian" || norm != "unit" || s.Eps != 0 || s.Gated {
			return s, fmt.Errorf("rfa: setting form=%s: the authors' program has kernel=gaussian, norm=unit, eps=0 and no gate", form)
		}
		s.Norm, s.Floor, s.FloorSize = attention.NoNorm, code.floor, code.size
		f.featureScale, f.normOffset = 0.1, 1e-3
	}
	f.sigma = f.params.New("sigma", false, f.heads, d)
	for i := range f.sigma.Data {
		f.sigma.Data[i] = 1
	}
	f.r = f.constants.New("R", false, f.heads, f.rows, d)
	for i := range f.r.Data {
		f.r.Data[i] = float(float32(key.Normal(uint64(i)))) // the same in both precisions
	}
	s.Name = r.Name
	s.Setting = fmt.Sprintf("rfa kernel=%s tau=%g norm=%s eps=%g gate=%t form=%s", kind, f.tau, norm, s.Eps, s.Gated, form)
	s.Scale, s.Coef, s.Positive = 1, []float64{0, 1}, kind == "arccos"
	if s.Positive {
		s.Features = &arccosFeatures{f}
	} else {
		s.Features = &sineFeatures{f}
	}
	return s, nil
}

// rfaProjection is u = R·(σ∘x)/τ, with rows R and factors σ for each head. Heads that
// share keys use the rows of the first of them, since products of features of different
// rows approximate no kernel (Peng et al. 2021, section 3.1).
type rfaProjection struct {
	d, heads, rows int
	tau            float64
	featureScale   float64 // of features
	normOffset     float64 // x is divided by |x| + normOffset; below 0: x is not divided
	sigma, r       *param.Param
	params         param.Set
	constants      param.Set
}

func (f *rfaProjection) Params() *param.Set { return &f.params }

func (f *rfaProjection) Constants() *param.Set { return &f.constants }

func (f *rfaProjection) Check(heads, _, d int) error {
	if d != f.d {
		return fmt.Errorf("q: has width %d, rows of R have %d", d, f.d)
	}
	return entry.CheckHeads("R", f.heads, heads)
}

// blockHead returns the head whose rows and factors a block uses.
func (f *rfaProjection) blockHead(b *attention.FeatureBlock) int {
	if f.heads == 1 {
		return 0
	}
	return b.First
}

// projectBlock returns u [rows, Stride], and x [D, Stride] before the multiplication by
// σ.
func (f *rfaProjection) projectBlock(b *attention.FeatureBlock) (u, x []float) {
	table := kernel.Active[float]()
	x = b.X
	if f.normOffset >= 0 {
		x = b.Scratch.Take(b.D * b.Stride)
		over := f.inverseLengths(b)
		for c := range b.D {
			table.Mul(x[c*b.Stride:][:b.N], b.X[c*b.Stride:], over)
		}
	}
	h := f.blockHead(b)
	scaled := *b
	scaled.X = b.Scratch.Take(b.D * b.Stride)
	for c, sigma := range f.sigma.Data[h*f.d:][:f.d] {
		table.Scale(scaled.X[c*b.Stride:][:b.N], sigma*float(1/f.tau), x[c*b.Stride:])
	}
	return entry.ProjectTokens(&scaled, f.headRows(h), f.rows), x
}

// headRows returns the rows [rows, D] of head h.
func (f *rfaProjection) headRows(h int) []float { return f.r.Data[h*f.rows*f.d:][:f.rows*f.d] }

// inverseLengths returns 1/(|x| + normOffset) of each token.
func (f *rfaProjection) inverseLengths(b *attention.FeatureBlock) []float {
	table := kernel.Active[float]()
	over := b.Scratch.Take(b.N)
	clear(over)
	for c := range b.D {
		row := b.X[c*b.Stride:][:b.N]
		table.MulAdd(over, row, row)
	}
	for i, square := range over {
		length := math.Sqrt(float64(square))
		if math.IsInf(length, 1) { // of squares that the element type does not hold
			length = kernel.ColumnNorm(b.X[i:], b.Stride, b.D)
		}
		over[i] = float(1 / (length + f.normOffset))
	}
	return over
}

// projectBlockGrad sets b.DX and adds to the gradient of σ, from x of projectBlock and
// the gradient du of u.
func (f *rfaProjection) projectBlockGrad(b *attention.FeatureBlock, x, du []float) {
	table := kernel.Active[float]()
	h := f.blockHead(b)
	entry.ProjectTokensGrad(b, f.headRows(h), f.rows, du)
	dsigma := b.DParams[0][h*f.d:][:f.d]
	over := float(1 / f.tau)
	for c, sigma := range f.sigma.Data[h*f.d:][:f.d] {
		row := b.DX[c*b.Stride:][:b.N]
		dsigma[c] += over * table.Dot(row, x[c*b.Stride:])
		table.Scale(row, sigma*over, row)
	}
	if f.normOffset >= 0 {
		f.inverseLengthsGrad(b)
	}
}

// inverseLengthsGrad turns b.DX, the gradient y of x/(|x| + c), into the gradient of x:
// (y - x̂·(x̂·y)·|x|/(|x| + c))/(|x| + c), with c = normOffset.
func (f *rfaProjection) inverseLengthsGrad(b *attention.FeatureBlock) {
	table := kernel.Active[float]()
	over := f.inverseLengths(b)
	along := b.Scratch.Take(b.N)
	clear(along)
	for c := range b.D {
		table.MulAdd(along, b.DX[c*b.Stride:][:b.N], b.X[c*b.Stride:][:b.N])
	}
	for i, o := range over {
		switch length := 1/float64(o) - f.normOffset; {
		case length > 0x1p60: // products, or o/length, leave the range of float32
			var sum float64
			for c := range b.D {
				sum += float64(b.DX[c*b.Stride+i]) * float64(b.X[c*b.Stride+i])
			}
			along[i] = float(-sum * float64(o) / length)
		case length > 0:
			along[i] *= float(-float64(o) / length)
		}
	}
	for c := range b.D {
		row := b.DX[c*b.Stride:][:b.N]
		table.MulAdd(row, b.X[c*b.Stride:][:b.N], along)
		table.Mul(row, row, over)
	}
}

// sineFeatures are the features featureScale·[sin(u), cos(u)].
type sineFeatures struct{ rfaProjection }

func (f *sineFeatures) Dim(int) int { return 2 * f.rows }

// Bound returns the largest product of features: sin·sin + cos·cos is the cosine of a
// difference.
func (f *sineFeatures) Bound() float64 { return f.featureScale * f.featureScale * float64(f.rows) }

func (f *sineFeatures) Map(b *attention.FeatureBlock) {
	table := kernel.Active[float]()
	mark := b.Scratch.Mark()
	u, _ := f.projectBlock(b)
	for r := range f.rows {
		sin, cos := b.Y[r*b.Stride:][:b.N], b.Y[(f.rows+r)*b.Stride:][:b.N]
		SinCos(sin, cos, u[r*b.Stride:][:b.N])
		table.Scale(sin, float(f.featureScale), sin)
		table.Scale(cos, float(f.featureScale), cos)
	}
	b.Scratch.Reset(mark)
}

func (f *sineFeatures) Grad(b *attention.FeatureBlock) {
	table := kernel.Active[float]()
	mark := b.Scratch.Mark()
	u, x := f.projectBlock(b)
	sin, cos := b.Scratch.Take(b.N), b.Scratch.Take(b.N)
	for r := range f.rows {
		SinCos(sin, cos, u[r*b.Stride:][:b.N])
		du, dcos := b.Y[r*b.Stride:][:b.N], b.Y[(f.rows+r)*b.Stride:][:b.N]
		table.Mul(du, du, cos)
		table.Mul(dcos, dcos, sin)
		table.Axpy(du, -1, dcos)
		table.Scale(du, float(f.featureScale), du)
	}
	f.projectBlockGrad(b, x, b.Y)
	b.Scratch.Reset(mark)
}

// arccosFeatures are the features featureScale·max(u, 0). Their products approximate
// the arc-cosine kernel of order 1 (Cho and Saul 2009).
type arccosFeatures struct{ rfaProjection }

func (f *arccosFeatures) Dim(int) int { return f.rows }

// Sparse marks that all features of a token may be 0.
func (f *arccosFeatures) Sparse() {}

func (f *arccosFeatures) Map(b *attention.FeatureBlock) {
	mark := b.Scratch.Mark()
	u, _ := f.projectBlock(b)
	size := float(f.featureScale)
	for r := range f.rows {
		row := b.Y[r*b.Stride:][:b.N]
		for c, v := range u[r*b.Stride:][:b.N] {
			row[c] = size * max(v, 0)
		}
	}
	b.Scratch.Reset(mark)
}

func (f *arccosFeatures) Grad(b *attention.FeatureBlock) {
	mark := b.Scratch.Mark()
	u, x := f.projectBlock(b)
	size := float(f.featureScale)
	for r := range f.rows {
		row := b.Y[r*b.Stride:][:b.N]
		for c, v := range u[r*b.Stride:][:b.N] {
			if row[c] *= size; !(v > 0) {
				row[c] = 0
			}
		}
	}
	f.projectBlockGrad(b, x, b.Y)
	b.Scratch.Reset(mark)
}
