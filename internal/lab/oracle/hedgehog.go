package oracle

import "math"

// Hedgehog are the learned features of Hedgehog (arXiv 2402.04347, section 4.2):
// [exp(w·x + b), exp(-w·x - b)], with rows w and numbers b of each head, of
// queries and of keys. P holds the weights [H,D,D] and biases [H,D] of queries,
// and then those of keys.
type Hedgehog struct {
	P        []float64
	Heads, D int
}

// from returns where the weights and the biases of a place begin in P.
func (f *Hedgehog) from(at Place) (w, b int) {
	all := f.Heads * f.D
	if at.Keys {
		w = all*f.D + all
	}
	return w + at.Head*f.D*f.D, w + all*f.D + at.Head*f.D
}

func (f *Hedgehog) Map(at Place, x []float64) []float64 {
	w, b := f.from(at)
	y := make([]float64, 2*f.D)
	for r := range f.D {
		u := dot(f.P[w+r*f.D:][:f.D], x) + f.P[b+r]
		y[r], y[f.D+r] = math.Exp(u), math.Exp(-u)
	}
	return y
}

// Size counts the roundings of an exponent, by the size of its terms, as parts of
// the feature.
func (f *Hedgehog) Size(at Place, x []float64) []float64 {
	w, b := f.from(at)
	y := f.Map(at, x)
	for r := range y {
		y[r] *= 1 + dot(sizes(f.P[w+r%f.D*f.D:][:f.D]), sizes(x)) + math.Abs(f.P[b+r%f.D])
	}
	return y
}

func (f *Hedgehog) Grad(at Place, x, dy, dp []float64) []float64 {
	w, b := f.from(at)
	dx := make([]float64, len(x))
	for r, y := range f.Map(at, x) {
		du := y * dy[r]
		if r >= f.D {
			du = -du
		}
		r %= f.D
		add(dx, du, f.P[w+r*f.D:][:f.D])
		add(dp[w+r*f.D:][:f.D], du, x)
		dp[b+r] += du
	}
	return dx
}

func (f *Hedgehog) Learned(int) []float64 { return f.P }
