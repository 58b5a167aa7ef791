package zoo

import (
	"fmt"
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
)

// NewPerformer builds favorFeatures, or favorHead for form=code with positive features.
func NewPerformer(r *entry.Reader) (attention.Mechanism, error) {
	s, err := performerSpec(r)
	if err != nil {
		return nil, err
	}
	if f := s.Features.(*favorFeatures); r.Text("form") == "code" && f.kernel != "relu" {
		return headwise.New(&favorHead{f}), nil
	}
	return factorised.New(s)
}

func performerSpec(r *entry.Reader) (s attention.Spec, err error) {
	d := r.Width
	if d == 0 {
		return s, fmt.Errorf("%s: the width D is not known", r.Name)
	}
	f := &favorFeatures{d: d}
	if f.kernel, err = r.Choice("kernel", "softmax", "hyperbolic", "trigonometric", "relu"); err != nil {
		return s, err
	}
	f.rows = max(1, int(float64(d)*math.Log(float64(d))))
	if r.Text("features") != "D·ln(D)" {
		if f.rows, err = r.Integer("features", 1, 1<<14); err != nil {
			return s, err
		}
	}
	projection, err := r.Choice("projection", "orthogonal", "iid")
	if err != nil {
		return s, err
	}
	norms, err := r.Choice("norms", "chi", "sqrt(D)")
	if err != nil {
		return s, err
	}
	scale, err := r.Positive("scale", "1/sqrt(D)")
	if err != nil {
		return s, err
	}
	featureEps, err := r.Positive("feature_eps", "0")
	if err != nil {
		return s, err
	}
	if featureEps != 0 && f.kernel != "relu" {
		return s, fmt.Errorf("performer: setting feature_eps=%s: kernel=%s has none, since it would need a maximum over all keys", r.Text("feature_eps"), f.kernel)
	}
	if s.Eps, err = r.Positive("eps", "0"); err != nil {
		return s, err
	}
	key, err := r.Key()
	if err != nil {
		return s, err
	}
	form, err := r.Choice("form", "paper", "code")
	if err != nil {
		return s, err
	}
	if f.codeForm = form == "code"; f.codeForm {
		if f.kernel == "trigonometric" {
			return s, fmt.Errorf("performer: setting form=code: kernel=%s has the paper's form alone", f.kernel)
		}
		if featureEps != 0 || s.Eps != 0 {
			return s, fmt.Errorf("performer: setting form=code: it has feature_eps and eps of its own, which are not set")
		}
		switch f.kernel {
		case "relu":
			featureEps, s.Eps = 1e-3, 1e-6
		case "softmax":
			featureEps = 1e-4
		case "hyperbolic":
			s.Eps = 1e-6
		}
	}
	if _, err := r.Redraws(); err != nil {
		return s, err
	}
	f.featureEps, f.hasEps = float(featureEps), s.Eps > 0
	f.rootScale = math.Sqrt(scale)
	if scale == 0 {
		f.rootScale = math.Pow(float64(d), -0.25)
	}
	if err := r.Room("projection", max(f.rows, d), d); err != nil { // drawn in squares
		return s, err
	}
	f.w = f.constants.New("projection", false, f.rows, d)
	DrawProjection(f.w.Data, f.rows, d, projection == "orthogonal", norms == "sqrt(D)", key)
	s.Name = r.Name
	s.Setting = fmt.Sprintf("performer kernel=%s scale=%s feature_eps=%s eps=%s",
		f.kernel, entry.FormatScale(scale), r.Text("feature_eps"), strconv.FormatFloat(s.Eps, 'g', -1, 64))
	if f.codeForm {
		s.Setting += " form=code"
	}
	f.eps, f.setting = float(s.Eps), s.Setting
	s.Scale, s.Coef, s.Features, s.Positive = 1, []float64{0, 1}, f, f.kernel != "trigonometric"
	return s, nil
}

// DrawProjection sets w [rows, d] to standard normal rows. Orthogonal rows are taken
// from random rotations, block by block, and have the lengths of normal rows, or √d if
// even is set.
func DrawProjection(w []float, rows, d int, orthogonal, even bool, key rng.Key) {
	for i := range w {
		w[i] = float(float32(key.Normal(uint64(i)))) // the same in both precisions
	}
	if !orthogonal {
		return
	}
	for r0 := 0; r0 < rows; r0 += d {
		g := make([]float64, d*d)
		for i := range g {
			g[i] = key.Fold(1 + uint64(r0/d)).Normal(uint64(i))
		}
		q := OrthogonalFactor(g, d)
		for r := r0; r < min(r0+d, rows); r++ {
			row := w[r*d:][:d]
			length := math.Sqrt(float64(d))
			if !even {
				length = scratch.Norm2(row)
			}
			for c := range row {
				row[c] = float(float32(length * q[(r-r0)*d+c]))
			}
		}
	}
}

// OrthogonalFactor returns Qᵀ [d, d] of g = Q·R, where the diagonal of R is positive.
// With normal g, Q is uniformly distributed over the rotations (Mezzadri 2007, How to
// generate random matrices from the classical compact groups).
func OrthogonalFactor(g []float64, d int) []float64 {
	q := make([]float64, d*d)
	for c := range d {
		row := q[c*d:][:d]
		for i := range row {
			row[i] = g[i*d+c]
		}
	}
	orthonormaliseRows(q, d)
	return q
}

// orthonormaliseRows makes the rows of q [rows, d], rows ≤ d, orthogonal and of length
// 1, each within the span of the rows up to it.
func orthonormaliseRows(q []float64, d int) {
	for c := range len(q) / d {
		row := q[c*d:][:d]
		for range 2 { // the second pass removes the rounding errors of the first
			for b := range c {
				before := q[b*d:][:d]
				var along float64
				for i, x := range before {
					along += x * row[i]
				}
				for i, x := range before {
					row[i] -= along * x
				}
			}
		}
		length := scratch.Norm2(row)
		for i := range row {
			row[i] /= length
		}
	}
}

// favorFeatures are the features of Performer
//
//	softmax        exp(w·x - |x|²/2)/√m
//	hyperbolic     [exp(w·x - |x|²/2), exp(-w·x - |x|²/2)]/√(2m)
//	trigonometric  exp(min(|x|²/2, 64))·[sin(w·x), cos(w·x)]/√m, with eps 32 in place of 64
//	relu           max(w·x, 0) + eps; with form=code the features of a query are divided by
//	               their sum, so that eps acts as if it were added to sums over keys
//
// of rows x times √scale (Choromanski et al. 2021, lemma 1 and, for trigonometric, eq. 6). A common factor of the
// features of a query cancels, so that the largest exponent of a query is set to 0.
// Exponents of keys are at most |w|²/2 for any x, and near 0 for rows of usual length.
// The part of |w|²/2 beyond the range of numbers is subtracted from the exponent of w
// in keys and added to it in queries. It is a constant of each w: no feature depends on
// another token.
type favorFeatures struct {
	kernel     string
	d, rows    int
	rootScale  float64
	featureEps float
	hasEps     bool // eps is added to the sum, so that no factors cancel
	codeForm   bool
	eps        float // added to the sum
	setting    string
	w          *param.Param
	constants  param.Set
}

func (f *favorFeatures) Dim(int) int {
	if f.kernel == "hyperbolic" || f.kernel == "trigonometric" {
		return 2 * f.rows
	}
	return f.rows
}

func (f *favorFeatures) Params() *param.Set { return nil }

func (f *favorFeatures) Constants() *param.Set { return &f.constants }

func (f *favorFeatures) Check(_, _, d int) error {
	if d != f.d {
		return fmt.Errorf("projection: has rows of width %d, q has %d", f.d, d)
	}
	return nil
}

// Sparse marks that all features of a row may be 0: those of relu may, and others may
// underflow.
func (f *favorFeatures) Sparse() {}

func (f *favorFeatures) Map(b *attention.FeatureBlock) {
	mark := b.Scratch.Mark()
	f.computeFeatures(b, b.Y)
	b.Scratch.Reset(mark)
}

// computeFeatures sets y [features, Stride] to the features of b.
func (f *favorFeatures) computeFeatures(b *attention.FeatureBlock, y []float) {
	table := kernel.Active[float]()
	u := entry.ProjectTokens(b, f.w.Data, f.rows)
	root := float(f.rootScale)
	if f.kernel == "trigonometric" {
		f.trigonometricFeatures(b, y, u)
		return
	}
	if f.kernel == "relu" {
		f.reluFeatures(b, y, u)
		if f.codeForm && !b.Keys {
			over := f.inverseSums(b, y)
			for r := range f.rows {
				table.Mul(y[r*b.Stride:][:b.N], y[r*b.Stride:], over)
			}
		}
		return
	}
	off, shift := b.Scratch.Take(b.N), f.exponentShifts(b)
	clear(off)
	if b.Keys || f.hasEps {
		for c := range b.D {
			row := b.X[c*b.Stride:][:b.N]
			table.MulAdd(off, row, row)
		}
		least := float(math.Log(float64(f.Dim(0))) / 2)
		for c, square := range off {
			off[c] = root*root/2*square + least
		}
	} else {
		f.maxExponents(off, u, shift, b, root)
	}
	for r := range f.rows {
		row := y[r*b.Stride:][:b.N]
		table.Scale(row, root, u[r*b.Stride:])
		if f.kernel == "hyperbolic" {
			minus := y[(f.rows+r)*b.Stride:][:b.N]
			table.Scale(minus, -1, row)
			f.expFeatures(b, minus, off, shift[r])
		}
		f.expFeatures(b, row, off, shift[r])
	}
}

// reluFeatures sets y [rows, Stride] to the features of products u [rows, Stride].
func (f *favorFeatures) reluFeatures(b *attention.FeatureBlock, y, u []float) {
	for r := range f.rows {
		row := y[r*b.Stride:][:b.N]
		for c, v := range u[r*b.Stride:][:b.N] {
			row[c] = max(float(f.rootScale)*v, 0) + f.featureEps
		}
	}
}

// trigonometricFeatures sets y [2·rows, Stride] to the features of products u [rows, Stride].
func (f *favorFeatures) trigonometricFeatures(b *attention.FeatureBlock, y, u []float) {
	table := kernel.Active[float]()
	size, _ := f.trigonometricSizes(b)
	for r := range f.rows {
		sin, cos := y[r*b.Stride:][:b.N], y[(f.rows+r)*b.Stride:][:b.N]
		table.Scale(sin, float(f.rootScale), u[r*b.Stride:])
		SinCos(sin, cos, sin)
		table.Mul(sin, sin, size)
		table.Mul(cos, cos, size)
	}
}

// maxTrigonometric is the largest exponent of the length of a key in trigonometric features. Sums over
// a billion such keys are finite in float32.
const maxTrigonometric = 64

// trigonometricSizes returns exp(|x|²/2)/√m of each token, 1/√m of queries where a common factor
// cancels. No maximum over features bounds |x|²/2, as it does for positive features: it is
// maxTrigonometric at most, half of it where queries have the factor too. growing holds 1 for tokens
// whose factor grows with x, 0 for others.
func (f *favorFeatures) trigonometricSizes(b *attention.FeatureBlock) (size, growing []float) {
	table := kernel.Active[float]()
	size, growing = b.Scratch.Take(b.N), b.Scratch.Take(b.N)
	clear(size)
	clear(growing)
	if b.Keys || f.hasEps {
		most := float(maxTrigonometric)
		if f.hasEps {
			most /= 2
		}
		for c := range b.D {
			row := b.X[c*b.Stride:][:b.N]
			table.MulAdd(size, row, row)
		}
		for i, square := range size {
			if e := float(f.rootScale*f.rootScale/2) * square; e < most {
				size[i], growing[i] = e, 1
			} else {
				size[i] = most
			}
		}
	}
	table.Exp(size, size, 0)
	table.Scale(size, float(1/math.Sqrt(float64(f.rows))), size)
	return size, growing
}

// trigonometricGrad sets b.DX from b.Y, the gradient of features, and overwrites it.
func (f *favorFeatures) trigonometricGrad(b *attention.FeatureBlock) {
	table := kernel.Active[float]()
	y, sum, row := b.Scratch.Take(f.Dim(0)*b.Stride), b.Scratch.Take(b.N), b.Scratch.Take(b.N)
	f.computeFeatures(b, y)
	clear(sum)
	for r := range f.rows {
		sin, cos := y[r*b.Stride:][:b.N], y[(f.rows+r)*b.Stride:][:b.N]
		du, dcos := b.Y[r*b.Stride:][:b.N], b.Y[(f.rows+r)*b.Stride:][:b.N]
		table.MulAdd(sum, du, sin)
		table.MulAdd(sum, dcos, cos)
		table.Mul(row, dcos, sin)
		table.Mul(du, du, cos)
		table.Axpy(du, -1, row)
		table.Scale(du, float(f.rootScale), du)
	}
	entry.ProjectTokensGrad(b, f.w.Data, f.rows, b.Y)
	_, growing := f.trigonometricSizes(b)
	table.Mul(sum, sum, growing)
	table.Scale(sum, float(f.rootScale*f.rootScale), sum)
	for c := range b.D {
		table.MulAdd(b.DX[c*b.Stride:][:b.N], b.X[c*b.Stride:], sum)
	}
}

// inverseSums returns 1 over the sum of the features y [rows, Stride] of each token.
func (f *favorFeatures) inverseSums(b *attention.FeatureBlock, y []float) []float {
	table := kernel.Active[float]()
	sum := b.Scratch.Take(b.N)
	clear(sum)
	for r := range f.rows {
		table.Add(sum, sum, y[r*b.Stride:])
	}
	for i, x := range sum {
		sum[i] = 1 / x
	}
	return sum
}

// expFeatures sets row to exp(row - off), with shift subtracted for keys and added for
// queries.
func (f *favorFeatures) expFeatures(b *attention.FeatureBlock, row, off []float, shift float) {
	table := kernel.Active[float]()
	table.Axpy(row, -1, off)
	if shift != 0 && b.Keys {
		most := float(maxExponent())
		for i, e := range row {
			row[i] = min(e-shift, most)
		}
	} else if shift != 0 {
		for i := range row {
			row[i] += shift
		}
	}
	table.Exp(row, row, 0)
}

// inverseSumsGrad turns b.Y, the gradient of features over their sum, into the gradient
// of the features of products u [rows, Stride].
func (f *favorFeatures) inverseSumsGrad(b *attention.FeatureBlock, u []float) {
	table := kernel.Active[float]()
	y := b.Scratch.Take(f.rows * b.Stride)
	f.reluFeatures(b, y, u)
	over, along := f.inverseSums(b, y), b.Scratch.Take(b.N)
	clear(along)
	for r := range f.rows {
		table.MulAdd(along, b.Y[r*b.Stride:][:b.N], y[r*b.Stride:])
	}
	table.Mul(along, along, over)
	for r := range f.rows {
		row := b.Y[r*b.Stride:][:b.N]
		table.Axpy(row, -1, along)
		table.Mul(row, row, over)
	}
}

// clearStoppedGrads clears the gradients of features y whose exponents are clamped to
// maxExponent.
func (f *favorFeatures) clearStoppedGrads(b *attention.FeatureBlock, y []float) {
	table := kernel.Active[float]()
	if !b.Keys {
		return
	}
	top := b.Scratch.Take(1)
	top[0] = float(maxExponent())
	table.Exp(top, top, 0)
	for r, shift := range f.exponentShifts(b) {
		if float64(shift) < maxExponent()*spareShare {
			continue
		}
		for ; r < f.Dim(0); r += f.rows {
			for i, x := range y[r*b.Stride:][:b.N] {
				if x == top[0] {
					b.Y[r*b.Stride+i] = 0
				}
			}
		}
	}
}

// maxExponent returns the largest exponent of a key. Sums of thousands of such keys are
// finite.
func maxExponent() float64 {
	var x float
	if _, double := any(x).(float64); double {
		return 640
	}
	return 80
}

// spareShare is the share of maxExponent by which exponents of all keys may be lowered.
// Keys of twice the usual length keep their features at a width of 256.
const spareShare = 3. / 8

// exponentShifts returns for each w the excess of its exponents over maxExponent, at
// most spareShare of it. Larger exponents, in float32 for |w|² above 220, are clamped.
func (f *favorFeatures) exponentShifts(b *attention.FeatureBlock) []float {
	table := kernel.Active[float]()
	shift, most := b.Scratch.Take(f.rows), maxExponent()
	clear(shift)
	for r := range shift {
		w := f.w.Data[r*f.d:][:f.d]
		if beyond := float64(table.Dot(w, w))/2 - most; beyond > 0 && !f.hasEps {
			shift[r] = float(min(beyond, most*spareShare))
		}
	}
	return shift
}

// maxExponents sets off [tokens] to the largest exponent of each token.
func (f *favorFeatures) maxExponents(off, u, shift []float, b *attention.FeatureBlock, root float) {
	for r := range f.rows {
		for c, v := range u[r*b.Stride:][:b.N] {
			v *= root
			if f.kernel == "hyperbolic" && v < 0 {
				v = -v
			}
			if v += shift[r]; r == 0 || v > off[c] {
				off[c] = v
			}
		}
	}
}

func (f *favorFeatures) Grad(b *attention.FeatureBlock) {
	table := kernel.Active[float]()
	mark := b.Scratch.Mark()
	defer b.Scratch.Reset(mark)
	if f.kernel == "trigonometric" {
		f.trigonometricGrad(b)
		return
	}
	if f.kernel == "relu" {
		u := entry.ProjectTokens(b, f.w.Data, f.rows)
		if f.codeForm && !b.Keys {
			f.inverseSumsGrad(b, u)
		}
		for r := range f.rows {
			row := b.Y[r*b.Stride:][:b.N]
			for c, v := range u[r*b.Stride:][:b.N] {
				if row[c] *= float(f.rootScale); !(v > 0) {
					row[c] = 0
				}
			}
		}
		entry.ProjectTokensGrad(b, f.w.Data, f.rows, b.Y)
		return
	}
	y := b.Scratch.Take(f.Dim(0) * b.Stride)
	f.computeFeatures(b, y)
	f.clearStoppedGrads(b, y)
	du, sum := b.Y, b.Scratch.Take(b.N)
	clear(sum)
	for r := range f.rows {
		row := du[r*b.Stride:][:b.N]
		table.Mul(row, row, y[r*b.Stride:])
		table.Add(sum, sum, row)
		if f.kernel == "hyperbolic" {
			minus := du[(f.rows+r)*b.Stride:][:b.N]
			table.Mul(minus, minus, y[(f.rows+r)*b.Stride:])
			table.Add(sum, sum, minus)
			table.Axpy(row, -1, minus)
		}
		table.Scale(row, float(f.rootScale), row)
	}
	entry.ProjectTokensGrad(b, f.w.Data, f.rows, du)
	if !b.Keys && !f.hasEps {
		return // the factor of a query cancels, and so does its gradient
	}
	table.Scale(sum, float(-f.rootScale*f.rootScale), sum)
	for c := range b.D {
		table.MulAdd(b.DX[c*b.Stride:][:b.N], b.X[c*b.Stride:], sum)
	}
}
