package oracle

import "math"

// RandomFeatures maps rows to the features of random feature attention (arXiv 2103.02143,
// section 3.1): factor·[sin(u), cos(u)], or factor·max(u, 0) with Arccos, where u = R·(σ∘x)/τ.
// All heads that share a key head use R and σ of the first of them.
type RandomFeatures struct {
	R        [][][]float64 // [H][rows][D]
	Sigma    []float64     // [H·D]
	Tau      float64
	Factor   float64
	Arccos   bool
	Shortest float64 // x is divided by its length plus Shortest; below 0: x is not divided
}

func (f *RandomFeatures) head(at Place) int { return at.First % len(f.R) }

// row is x as it is before σ.
func (f *RandomFeatures) row(x []float64) []float64 {
	y := append([]float64{}, x...)
	if f.Shortest >= 0 {
		for c := range y {
			y[c] /= euclideanNorm(x) + f.Shortest
		}
	}
	return y
}

func (f *RandomFeatures) angles(at Place, x []float64) (u, size []float64) {
	h := f.head(at)
	y := f.row(x)
	for c := range y {
		y[c] *= f.Sigma[h*len(x)+c] / f.Tau
	}
	for _, w := range f.R[h] {
		u = append(u, dotProduct(w, y))
		size = append(size, dotProduct(absRow(w), absRow(y)))
	}
	return u, size
}

// Map returns the features of a row x [D].
func (f *RandomFeatures) Map(at Place, x []float64) []float64 {
	var sin, cos []float64
	u, _ := f.angles(at, x)
	for _, v := range u {
		if f.Arccos {
			sin = append(sin, f.Factor*math.Max(v, 0))
			continue
		}
		sin, cos = append(sin, f.Factor*math.Sin(v)), append(cos, f.Factor*math.Cos(v))
	}
	return append(sin, cos...)
}

// Size bounds the rounding errors of the features of a row x [D]: an angle has an error in
// proportion to the size of its terms, and sines and cosines change by no more than their
// angle.
func (f *RandomFeatures) Size(at Place, x []float64) []float64 {
	_, size := f.angles(at, x)
	y := make([]float64, len(f.Map(at, x)))
	for r := range y {
		y[r] = f.Factor * size[r%len(size)]
		if !f.Arccos {
			y[r] += f.Factor
		}
	}
	return y
}

// Learned returns Sigma.
func (f *RandomFeatures) Learned(int) []float64 { return f.Sigma }

// Grad returns the gradient of x [D] from dy, the gradient of the features, and adds the
// gradient of Sigma to dp.
func (f *RandomFeatures) Grad(at Place, x, dy, dp []float64) []float64 {
	h := f.head(at)
	u, _ := f.angles(at, x)
	by := make([]float64, len(x)) // the gradient of σ∘x/τ
	for r, w := range f.R[h] {
		du := f.Factor * dy[r]
		switch {
		case !f.Arccos:
			du = f.Factor * (dy[r]*math.Cos(u[r]) - dy[len(u)+r]*math.Sin(u[r]))
		case !(u[r] > 0):
			du = 0
		}
		addScaled(by, du, w)
	}
	y := f.row(x)
	dx := make([]float64, len(x))
	for c := range x {
		i := h*len(x) + c
		dp[i] += by[c] * y[c] / f.Tau
		dx[c] = by[c] * f.Sigma[i] / f.Tau
	}
	length := euclideanNorm(x)
	if f.Shortest < 0 {
		return dx
	}
	along := dotProduct(dx, x)
	for c := range dx {
		dx[c] /= length + f.Shortest
		if length > 0 {
			dx[c] -= along * x[c] / length / (length + f.Shortest) / (length + f.Shortest)
		}
	}
	return dx
}
