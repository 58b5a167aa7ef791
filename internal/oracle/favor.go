package oracle

import "math"

// Favor maps rows to the random features of Performer (arXiv 2009.14794). They are the features
// of lemma 1, its hyperbolic variant, the trigonometric features of eq. 6, or the ReLU features
// of generalised attention, as Kernel says.
type Favor struct {
	Kernel     string      // softmax, hyperbolic, trigonometric or relu
	W          [][]float64 // [m][D]
	Root       float64     // √scale, multiplies rows
	FeatureEps float64     // added to relu features
	KeepFactor bool        // queries keep the factors that cancel
	OverSum    bool        // relu features of queries are divided by their sum
}

// exponents returns ±w·x - |x|²/2 - ½ln m, where x is the row times Root. For queries it leaves
// out the terms that are the same for all features, and shifts the exponents so that the
// largest is 0: both cancel in the weights. With KeepFactor nothing is left out.
func (f *Favor) exponents(at Place, x []float64) []float64 {
	var e []float64
	for _, w := range f.W {
		e = append(e, f.Root*dotProduct(w, x))
	}
	if f.Kernel == "hyperbolic" {
		for r := range f.W {
			e = append(e, -e[r])
		}
	}
	off := f.Root*f.Root*dotProduct(x, x)/2 + math.Log(float64(len(e)))/2
	if !at.Keys && !f.KeepFactor {
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

// Map returns the features [m], or [2m] of the hyperbolic and trigonometric kernels, of a row x [D].
func (f *Favor) Map(at Place, x []float64) []float64 {
	if f.Kernel == "relu" {
		var y []float64
		for _, w := range f.W {
			y = append(y, math.Max(f.Root*dotProduct(w, x), 0)+f.FeatureEps)
		}
		if f.OverSum && !at.Keys {
			over := 1 / sumOf(y)
			for r := range y {
				y[r] *= over
			}
		}
		return y
	}
	if f.Kernel == "trigonometric" {
		var sin, cos []float64
		for _, w := range f.W {
			u := f.Root * dotProduct(w, x)
			sin, cos = append(sin, f.length(at, x)*math.Sin(u)), append(cos, f.length(at, x)*math.Cos(u))
		}
		return append(sin, cos...)
	}
	y := f.exponents(at, x)
	for r := range y {
		y[r] = math.Exp(y[r])
	}
	return y
}

// length returns the factor exp(|x|²/2)/√m of the trigonometric features of a row, where x is
// the row times Root. For queries the exponential is left out, because it cancels, unless
// KeepFactor is set.
func (f *Favor) length(at Place, x []float64) float64 {
	over := 1 / math.Sqrt(float64(len(f.W)))
	if !at.Keys && !f.KeepFactor {
		return over
	}
	e, _ := f.lengthExponent(x)
	return over * math.Exp(e)
}

// lengthExponent returns |x|²/2, where x is the row times Root, and whether it grows with x. It
// is at most 64, or 32 if KeepFactor is set, so that queries have the factor too.
func (f *Favor) lengthExponent(x []float64) (e float64, grows bool) {
	most := 64.0
	if f.KeepFactor {
		most = 32
	}
	e = f.Root * f.Root * dotProduct(x, x) / 2
	return math.Min(e, most), e < most
}

// Size bounds the rounding errors of the features [m] of a row x [D]. An exponent and an angle
// have an error in proportion to the size of their terms, and so has a ReLU feature, even if it
// is 0.
func (f *Favor) Size(at Place, x []float64) []float64 {
	y, over := f.Map(at, x), 1.0
	if f.OverSum && !at.Keys {
		own := *f
		own.OverSum = false
		over = 1 / sumOf(own.Map(at, x))
	}
	for r := range y {
		terms := f.Root * dotProduct(absRow(f.W[r%len(f.W)]), absRow(x))
		if f.Kernel == "relu" {
			y[r] = (terms + f.FeatureEps) * over
			continue
		}
		if f.Kernel == "trigonometric" {
			y[r] = f.length(at, x)
		}
		y[r] *= 1 + terms + f.Root*f.Root*dotProduct(x, x)/2
	}
	return y
}

// overSumGrad returns the gradient of the features from dy, the gradient of the
// features over their sum.
func (f *Favor) overSumGrad(at Place, x, dy []float64) (d []float64) {
	own := *f
	own.OverSum = false
	sum, along := sumOf(own.Map(at, x)), dotProduct(dy, f.Map(at, x))
	for _, g := range dy {
		d = append(d, (g-along)/sum)
	}
	return d
}

// Learned returns nil, because random features have no learned numbers.
func (f *Favor) Learned(int) []float64 { return nil }

// Grad returns the gradient of x [D] from dy, the gradient of the features [m].
func (f *Favor) Grad(at Place, x, dy, _ []float64) []float64 {
	dx := make([]float64, len(x))
	if f.Kernel == "relu" {
		if f.OverSum && !at.Keys {
			dy = f.overSumGrad(at, x, dy)
		}
		for r, w := range f.W {
			if dotProduct(w, x) > 0 {
				addScaled(dx, f.Root*dy[r], w)
			}
		}
		return dx
	}
	if f.Kernel == "trigonometric" {
		m, y := len(f.W), f.Map(at, x)
		for r, w := range f.W {
			addScaled(dx, f.Root*(dy[r]*y[m+r]-dy[m+r]*y[r]), w)
		}
		if _, grows := f.lengthExponent(x); grows && (at.Keys || f.KeepFactor) {
			addScaled(dx, f.Root*f.Root*dotProduct(dy, y), x)
		}
		return dx
	}
	for r, y := range f.Map(at, x) {
		sign := 1.0
		if r >= len(f.W) {
			sign = -1
		}
		addScaled(dx, sign*f.Root*y*dy[r], f.W[r%len(f.W)])
		addScaled(dx, -f.Root*f.Root*y*dy[r], x)
	}
	return dx
}

// HeadFavor is Favor with the softmax or hyperbolic kernel as published programs compute it:
// before the exponential they subtract the largest exponent of a head from all of them, or for
// the hyperbolic kernel its largest scaled squared length.
type HeadFavor struct {
	Favor
	Eps float64 // added to the sum of weights
}

// Weights returns the attention matrix of a head. It is a HeadMatrix.
func (f *HeadFavor) Weights(h *Head) [][]float64 {
	cq, ck := f.Shifts(h)
	return f.WeightsShiftedBy(h, cq, ck)
}

// Shifts returns the numbers cq [n] and ck [m] that are subtracted from the exponents of
// queries and keys.
func (f *HeadFavor) Shifts(h *Head) (cq, ck []float64) {
	return f.shiftsOfRows(h.Q, nil), f.shiftsOfRows(h.K, h.Exist)
}

func (f *HeadFavor) shiftsOfRows(rows [][]float64, exist []bool) []float64 {
	c := make([]float64, len(rows))
	of := func(x []float64) float64 {
		if f.Kernel == "hyperbolic" {
			return f.Root * f.Root * dotProduct(x, x)
		}
		most := math.Inf(-1)
		for _, w := range f.W {
			most = max(most, f.Root*dotProduct(w, x))
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

// WeightsShiftedBy returns the weights [n,m] after subtracting cq [n] and ck [m] from the
// exponents. Gradients of the softmax kernel treat cq and ck as constants.
func (f *HeadFavor) WeightsShiftedBy(h *Head, cq, ck []float64) [][]float64 {
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
				a[i][j] = dotProduct(y, keys[j])
				den += a[i][j]
			}
		}
		for j := range a[i] {
			a[i][j] /= den
		}
	}
	return a
}

func (f *HeadFavor) dim() int {
	if f.Kernel == "hyperbolic" {
		return 2 * len(f.W)
	}
	return len(f.W)
}

func sumOf(x []float64) (sum float64) {
	for _, y := range x {
		sum += y
	}
	return sum
}
