package oracle

import "math"

// Favor are the random features of Performer (arXiv 2009.14794): lemma 1, its
// hyperbolic variant, and those of the generalised attention with ReLU.
type Favor struct {
	Kernel     string      // softmax, hyperbolic or relu
	W          [][]float64 // [m][D]
	Root       float64     // √scale, by which rows are multiplied
	FeatureEps float64     // added to relu features
	Exact      bool        // queries too have no factor left out
}

// exponents returns ±w·x - |x|²/2 - ½ln m of rows x√scale. Queries are without
// what is the same for all their features, so that their largest exponent is 0:
// it cancels, unless Exact.
func (f *Favor) exponents(at Place, x []float64) []float64 {
	var e []float64
	for _, w := range f.W {
		e = append(e, f.Root*dot(w, x))
	}
	if f.Kernel == "hyperbolic" {
		for r := range f.W {
			e = append(e, -e[r])
		}
	}
	off := f.Root*f.Root*dot(x, x)/2 + math.Log(float64(len(e)))/2
	if !at.Keys && !f.Exact {
		off = math.Inf(-1)
		for _, y := range e {
			off = math.Max(off, y)
		}
	}
	for r := range e {
		e[r] -= off
	}
	return e
}

func (f *Favor) Map(at Place, x []float64) []float64 {
	if f.Kernel == "relu" {
		var y []float64
		for _, w := range f.W {
			y = append(y, math.Max(f.Root*dot(w, x), 0)+f.FeatureEps)
		}
		return y
	}
	y := f.exponents(at, x)
	for r := range y {
		y[r] = math.Exp(y[r])
	}
	return y
}

// Size counts the roundings of an exponent, by the size of its terms, as parts of
// the feature; those of a feature that is cut off as that of its terms.
func (f *Favor) Size(at Place, x []float64) []float64 {
	y := f.Map(at, x)
	for r := range y {
		terms := f.Root * dot(sizes(f.W[r%len(f.W)]), sizes(x))
		if f.Kernel == "relu" {
			y[r] = terms + f.FeatureEps
			continue
		}
		y[r] *= 1 + terms + f.Root*f.Root*dot(x, x)/2
	}
	return y
}

func (f *Favor) Learned(int) []float64 { return nil }

func (f *Favor) Grad(at Place, x, dy, _ []float64) []float64 {
	dx := make([]float64, len(x))
	if f.Kernel == "relu" {
		for r, w := range f.W {
			if dot(w, x) > 0 {
				add(dx, f.Root*dy[r], w)
			}
		}
		return dx
	}
	for r, y := range f.Map(at, x) {
		sign := 1.0
		if r >= len(f.W) {
			sign = -1
		}
		add(dx, sign*f.Root*y*dy[r], f.W[r%len(f.W)])
		add(dx, -f.Root*f.Root*y*dy[r], x)
	}
	return dx
}
