package oracle

import "math"

// Hedgehog maps rows to the learned features of Hedgehog (arXiv 2402.04347, section 4.2):
// [exp(w·x + b), exp(-w·x - b)]. Each head has its own rows w and numbers b for queries and for
// keys. P holds the weights [H,D,D] and biases [H,D] for queries, then those for keys.
type Hedgehog struct {
	P        []float64
	Heads, D int
}

// offsets returns the index in P of the first weight and of the first bias of a place.
func (f *Hedgehog) offsets(at Place) (w, b int) {
	all := f.Heads * f.D
	if at.Keys {
		w = all*f.D + all
	}
	return w + at.Head*f.D*f.D, w + all*f.D + at.Head*f.D
}

// Map returns the features [2D] of a row x [D].
func (f *Hedgehog) Map(at Place, x []float64) []float64 {
	w, b := f.offsets(at)
	y := make([]float64, 2*f.D)
	for r := range f.D {
		u := dotProduct(f.P[w+r*f.D:][:f.D], x) + f.P[b+r]
		y[r], y[f.D+r] = math.Exp(u), math.Exp(-u)
	}
	return y
}

// Size bounds the rounding errors of the features [2D] of a row x [D]: an exponent has an error
// in proportion to the size of its terms.
func (f *Hedgehog) Size(at Place, x []float64) []float64 {
	w, b := f.offsets(at)
	y := f.Map(at, x)
	for r := range y {
		y[r] *= 1 + dotProduct(absRow(f.P[w+r%f.D*f.D:][:f.D]), absRow(x)) + math.Abs(f.P[b+r%f.D])
	}
	return y
}

// Grad returns the gradient of x [D] from dy [2D] and adds the gradient of P to dp.
func (f *Hedgehog) Grad(at Place, x, dy, dp []float64) []float64 {
	w, b := f.offsets(at)
	dx := make([]float64, len(x))
	for r, y := range f.Map(at, x) {
		du := y * dy[r]
		if r >= f.D {
			du = -du
		}
		r %= f.D
		addScaled(dx, du, f.P[w+r*f.D:][:f.D])
		addScaled(dp[w+r*f.D:][:f.D], du, x)
		dp[b+r] += du
	}
	return dx
}

// Learned returns P.
func (f *Hedgehog) Learned(int) []float64 { return f.P }
