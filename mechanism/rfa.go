package mechanism

import (
	"fmt"
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

var rfa = Row{
	Name:   "rfa",
	Doc:    "φ(q̂)·φ(k̂) of sines and cosines whose mean is a Gaussian of q̂ - k̂, or of relu features: random feature attention",
	Source: "Peng et al. 2021, Random Feature Attention, arXiv 2103.02143, sections 3.1 and 3.2; kernel=gaussian norm=none: Rahimi and Recht 2007",
	Traits: "weights of either sign with kernel=gaussian, so that denominators may nearly cancel, which is counted; never negative with kernel=arccos; " +
		"direct and linear forms; state of fixed size; a gate where the call has log_g",
	Linear: true,
	Settings: []Setting{
		{"kernel", "gaussian", "gaussian: sines and cosines; or arccos: relu"},
		{"features", "D", "rows w of the projection of each head: a whole number, or D. gaussian has two features for each"},
		{"tau", "1", "τ, by which rows w are divided"},
		{"norm", "unit", "rows of q and k are divided by their length: unit; or are as they are: none"},
		{"eps", "0", "added to the sum of the weights"},
		{"gate", "false", "true: a token's key enters with the factor 1 - g, g = exp(log_g); without log_g in the call, whole"},
		{"form", "paper", "paper, or as the authors' program: features 0.1·(sin, cos) of rows over their length + 1e-3, and a sum that is " +
			"at least 1 (code), of size at least 1 (code-cross) or 1e-3 (code-masked)"},
		seed,
	},
	Params: []Param{
		{"sigma", "(H, D)", "σ, factors of the channels before the projection; of the first head that shares its keys"},
	},
	Constants: []Param{
		{"R", "(H, M, D)", "rows w of the projection of each head, or of the first that shares its keys"},
	},
	fit: func(o *Options, shapes map[string][]int) {
		if s := shapes["R"]; len(s) == 3 {
			o.say("features", strconv.Itoa(s[1]))
		}
	},
	f32: spec(rfaSpec[float32]),
	f64: spec(rfaSpec[float64]),
}

// rfaForms are what the authors' programs divide by, by the names of the form.
var rfaForms = map[string]struct {
	floor float64
	size  bool
}{"code": {1, false}, "code-cross": {1, true}, "code-masked": {1e-3, true}}

func rfaSpec[T tensor.Float](r *reader) (s attention.Spec[T], err error) {
	d := r.o.Width
	if d == 0 {
		return s, fmt.Errorf("%s: the width D is not known", r.row.Name)
	}
	f := projection[T]{d: d, heads: max(r.o.Heads, 1), rows: d, norm: -1}
	kind, err := r.choice("kernel", "gaussian", "arccos")
	if err != nil {
		return s, err
	}
	if r.value("features") != "D" {
		if f.rows, err = r.whole("features", 1, 1<<14); err != nil {
			return s, err
		}
	}
	if f.tau, err = r.positive("tau", ""); err != nil {
		return s, err
	}
	norm, err := r.choice("norm", "unit", "none")
	if err != nil {
		return s, err
	}
	if s.Eps, err = r.positive("eps", "0"); err != nil {
		return s, err
	}
	if s.Gated, err = r.boolean("gate"); err != nil {
		return s, err
	}
	form, err := r.choice("form", "paper", "code", "code-cross", "code-masked")
	if err != nil {
		return s, err
	}
	key, err := r.key()
	if err != nil {
		return s, err
	}
	if err := r.room("R", f.heads, f.rows, d); err != nil {
		return s, err
	}
	f.size = 1 / math.Sqrt(float64(f.rows))
	if norm == "unit" {
		s.Norm = attention.Unit
	}
	if code, is := rfaForms[form]; is {
		if kind != "gaussian" || norm != "unit" || s.Eps != 0 || s.Gated {
			return s, fmt.Errorf("rfa: setting form=%s: the authors' program has kernel=gaussian, norm=unit, eps=0 and no gate", form)
		}
		s.Norm, s.Floor, s.FloorSize = attention.NoNorm, code.floor, code.size
		f.size, f.norm = 0.1, 1e-3
	}
	f.sigma = f.params.New("sigma", false, f.heads, d)
	for i := range f.sigma.Data {
		f.sigma.Data[i] = 1
	}
	f.r = f.constants.New("R", false, f.heads, f.rows, d)
	for i := range f.r.Data {
		f.r.Data[i] = T(float32(key.Normal(uint64(i)))) // the same in both precisions
	}
	s.Name = r.row.Name
	s.Setting = fmt.Sprintf("rfa kernel=%s tau=%g norm=%s eps=%g gate=%t form=%s", kind, f.tau, norm, s.Eps, s.Gated, form)
	s.Scale, s.Coef, s.Positive = 1, []float64{0, 1}, kind == "arccos"
	if s.Positive {
		s.Features = &arccos[T]{f}
	} else {
		s.Features = &trigonometric[T]{f}
	}
	return s, nil
}

// projection is u = R·(σ∘x)/τ, with rows R and factors σ of every head. Heads that
// share keys have those of their first, since products of features of different
// rows stand for nothing.
type projection[T tensor.Float] struct {
	d, heads, rows int
	tau            float64
	size           float64 // of features
	norm           float64 // x is divided by its length and this; below 0: it is as it comes
	sigma, r       *param.Param[T]
	params         param.Set[T]
	constants      param.Set[T]
}

func (f *projection[T]) Params() *param.Set[T] { return &f.params }

func (f *projection[T]) Constants() *param.Set[T] { return &f.constants }

func (f *projection[T]) Check(heads, _, d int) error {
	if d != f.d {
		return fmt.Errorf("q: has width %d, rows of R have %d", d, f.d)
	}
	return checkHeads("R", f.heads, heads)
}

// of returns which head's numbers a block has.
func (f *projection[T]) of(b *attention.FeatureBlock[T]) int {
	if f.heads == 1 {
		return 0
	}
	return b.First
}

// projected returns u, and x as it is before σ.
func (f *projection[T]) projected(b *attention.FeatureBlock[T]) (u, x []T) {
	x = b.X
	if f.norm >= 0 {
		x = b.Take(b.D * b.Stride)
		over := f.lengths(b)
		for c := range b.D {
			b.Table.Mul(x[c*b.Stride:][:b.N], b.X[c*b.Stride:], over)
		}
	}
	h := f.of(b)
	scaled := *b
	scaled.X = b.Take(b.D * b.Stride)
	for c, sigma := range f.sigma.Data[h*f.d:][:f.d] {
		b.Table.Scale(scaled.X[c*b.Stride:][:b.N], sigma*T(1/f.tau), x[c*b.Stride:])
	}
	return project(&scaled, f.weights(h), f.rows), x
}

// weights are the rows of head h.
func (f *projection[T]) weights(h int) []T { return f.r.Data[h*f.rows*f.d:][:f.rows*f.d] }

// lengths returns 1/(|x| + norm) of each token.
func (f *projection[T]) lengths(b *attention.FeatureBlock[T]) []T {
	over := b.Take(b.N)
	clear(over)
	for c := range b.D {
		row := b.X[c*b.Stride:][:b.N]
		b.Table.MulAdd(over, row, row)
	}
	for i, square := range over {
		over[i] = T(1 / (math.Sqrt(float64(square)) + f.norm))
	}
	return over
}

// projectedGrad sets b.DX and adds to the gradient of σ, from the gradient du of
// u and from x, as projected has them.
func (f *projection[T]) projectedGrad(b *attention.FeatureBlock[T], x, du []T) {
	h := f.of(b)
	projectGrad(b, f.weights(h), f.rows, du)
	dsigma := b.DParams[0][h*f.d:][:f.d]
	over := T(1 / f.tau)
	for c, sigma := range f.sigma.Data[h*f.d:][:f.d] {
		row := b.DX[c*b.Stride:][:b.N]
		dsigma[c] += over * b.Table.Dot(row, x[c*b.Stride:])
		b.Table.Scale(row, sigma*over, row)
	}
	if f.norm >= 0 {
		f.lengthsGrad(b)
	}
}

// lengthsGrad turns b.DX, the gradient of x/(|x| + norm), into that of x:
// y less x̂·(x̂·y)·|x|/(|x| + norm), all over |x| + norm.
func (f *projection[T]) lengthsGrad(b *attention.FeatureBlock[T]) {
	over := f.lengths(b)
	along := b.Take(b.N)
	clear(along)
	for c := range b.D {
		b.Table.MulAdd(along, b.DX[c*b.Stride:][:b.N], b.X[c*b.Stride:][:b.N])
	}
	for i, o := range over {
		if length := 1/float64(o) - f.norm; length > 0 {
			along[i] *= T(-float64(o) / length)
		}
	}
	for c := range b.D {
		row := b.DX[c*b.Stride:][:b.N]
		b.Table.MulAdd(row, b.X[c*b.Stride:][:b.N], along)
		b.Table.Mul(row, row, over)
	}
}

// trigonometric are the features size·[sin(u), cos(u)].
type trigonometric[T tensor.Float] struct{ projection[T] }

func (f *trigonometric[T]) Dim(int) int { return 2 * f.rows }

// Bound is that of a sum of cosines: sin·sin + cos·cos is one of a difference.
func (f *trigonometric[T]) Bound() float64 { return f.size * f.size * float64(f.rows) }

func (f *trigonometric[T]) Map(b *attention.FeatureBlock[T]) {
	mark := b.Scratch.Mark()
	u, _ := f.projected(b)
	for r := range f.rows {
		sin, cos := b.Y[r*b.Stride:][:b.N], b.Y[(f.rows+r)*b.Stride:][:b.N]
		sincos(sin, cos, u[r*b.Stride:][:b.N])
		b.Table.Scale(sin, T(f.size), sin)
		b.Table.Scale(cos, T(f.size), cos)
	}
	b.Scratch.Reset(mark)
}

func (f *trigonometric[T]) Grad(b *attention.FeatureBlock[T]) {
	mark := b.Scratch.Mark()
	u, x := f.projected(b)
	sin, cos := b.Take(b.N), b.Take(b.N)
	for r := range f.rows {
		sincos(sin, cos, u[r*b.Stride:][:b.N])
		du, dcos := b.Y[r*b.Stride:][:b.N], b.Y[(f.rows+r)*b.Stride:][:b.N]
		b.Table.Mul(du, du, cos)
		b.Table.Mul(dcos, dcos, sin)
		b.Table.Axpy(du, -1, dcos)
		b.Table.Scale(du, T(f.size), du)
	}
	f.projectedGrad(b, x, b.Y)
	b.Scratch.Reset(mark)
}

// arccos are the features size·max(u, 0), whose products stand for the kernel of
// Cho and Saul 2009 of order 1.
type arccos[T tensor.Float] struct{ projection[T] }

func (f *arccos[T]) Dim(int) int { return f.rows }

// Sparse: all rows may be on the other side of x.
func (f *arccos[T]) Sparse() {}

func (f *arccos[T]) Map(b *attention.FeatureBlock[T]) {
	mark := b.Scratch.Mark()
	u, _ := f.projected(b)
	size := T(f.size)
	for r := range f.rows {
		row := b.Y[r*b.Stride:][:b.N]
		for c, v := range u[r*b.Stride:][:b.N] {
			row[c] = size * max(v, 0)
		}
	}
	b.Scratch.Reset(mark)
}

func (f *arccos[T]) Grad(b *attention.FeatureBlock[T]) {
	mark := b.Scratch.Mark()
	u, x := f.projected(b)
	size := T(f.size)
	for r := range f.rows {
		row := b.Y[r*b.Stride:][:b.N]
		for c, v := range u[r*b.Stride:][:b.N] {
			if row[c] *= size; !(v > 0) {
				row[c] = 0
			}
		}
	}
	f.projectedGrad(b, x, b.Y)
	b.Scratch.Reset(mark)
}
