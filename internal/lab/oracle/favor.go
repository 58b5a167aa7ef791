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
	OverSum    bool        // relu features of queries are over their sum
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
		if f.OverSum && !at.Keys {
			over := 1 / total(y)
			for r := range y {
				y[r] *= over
			}
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
	y, over := f.Map(at, x), 1.0
	if f.OverSum && !at.Keys {
		own := *f
		own.OverSum = false
		over = 1 / total(own.Map(at, x))
	}
	for r := range y {
		terms := f.Root * dot(sizes(f.W[r%len(f.W)]), sizes(x))
		if f.Kernel == "relu" {
			y[r] = (terms + f.FeatureEps) * over
			continue
		}
		y[r] *= 1 + terms + f.Root*f.Root*dot(x, x)/2
	}
	return y
}

// overSumGrad returns the gradient of features from that of features over their
// sum, of which along is the part that their sum takes.
func (f *Favor) overSumGrad(at Place, x, dy []float64) (d []float64) {
	own := *f
	own.OverSum = false
	sum, along := total(own.Map(at, x)), dot(dy, f.Map(at, x))
	for _, g := range dy {
		d = append(d, (g-along)/sum)
	}
	return d
}

func (f *Favor) Learned(int) []float64 { return nil }

func (f *Favor) Grad(at Place, x, dy, _ []float64) []float64 {
	dx := make([]float64, len(x))
	if f.Kernel == "relu" {
		if f.OverSum && !at.Keys {
			dy = f.overSumGrad(at, x, dy)
		}
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

// FavorWhole are the features of Favor, softmax or hyperbolic, as programs have
// them: the largest of a head's exponents, or lengths, is taken from all.
type FavorWhole struct {
	Favor
	Eps float64 // added to the sum of weights
}

// Weights is the Whole of f.
func (f *FavorWhole) Weights(h *Head) [][]float64 {
	cq, ck := f.Taken(h)
	return f.At(h, cq, ck)
}

// Taken returns what is taken from the exponents of queries and of keys.
func (f *FavorWhole) Taken(h *Head) (cq, ck []float64) {
	return f.taken(h.Q, nil), f.taken(h.K, h.Exist)
}

func (f *FavorWhole) taken(rows [][]float64, exist []bool) []float64 {
	c := make([]float64, len(rows))
	of := func(x []float64) float64 {
		if f.Kernel == "hyperbolic" {
			return f.Root * f.Root * dot(x, x)
		}
		most := math.Inf(-1)
		for _, w := range f.W {
			most = max(most, f.Root*dot(w, x))
		}
		return most
	}
	most := math.Inf(-1)
	for i, x := range rows {
		if exist == nil || exist[i] {
			most = max(most, of(x))
		}
	}
	for i, x := range rows {
		if c[i] = most; exist == nil && f.Kernel == "softmax" { // queries have their own
			c[i] = of(x)
		}
	}
	return c
}

// At returns the weights where cq and ck are taken from the exponents of rows,
// which of kernel softmax are constants in its gradients.
func (f *FavorWhole) At(h *Head, cq, ck []float64) [][]float64 {
	features := func(x []float64, c float64) (y []float64) {
		for _, e := range f.exponents(Place{Keys: true}, x) {
			y = append(y, math.Exp(e-c)+f.FeatureEps/math.Sqrt(float64(f.dim())))
		}
		return y
	}
	keys := make([][]float64, len(h.K))
	for j, k := range h.K {
		keys[j] = features(k, ck[j])
	}
	a := make([][]float64, len(h.Q))
	for i, q := range h.Q {
		a[i] = make([]float64, len(h.K))
		y, den := features(q, cq[i]), f.Eps
		for j := range h.K {
			if h.Sees(i, j) {
				a[i][j] = dot(y, keys[j])
				den += a[i][j]
			}
		}
		for j := range a[i] {
			a[i][j] /= den
		}
	}
	return a
}

func (f *FavorWhole) dim() int {
	if f.Kernel == "hyperbolic" {
		return 2 * len(f.W)
	}
	return len(f.W)
}

func total(x []float64) (sum float64) {
	for _, y := range x {
		sum += y
	}
	return sum
}
