package oracle

import "math"

// Norm is a normalisation of the queries and keys before the product.
type Norm int

const (
	NoNorm   Norm = iota
	Standard      // (x - mean)/STD over the channels, population STD: FAST eq. 5-6
	Unit          // x/|x|₂: TaylorShift section 3.3, step 1
	Bounded       // (x - mean)/|x - mean|₂
)

// Map is an elementwise feature map with its derivative.
type Map struct {
	F, DF func(x float64) float64

	// Size returns the size that the rounding error of F(x) is proportional to; nil: |F(x)|. A
	// map that cuts off needs it, because a number near the edge has the error of a number of
	// its own size.
	Size func(x float64) float64
}

// Features is a feature map of whole rows, which may depend on the row's head and side,
// with its derivative.
type Features interface {
	Map(at Place, x []float64) []float64
	// Size bounds the rounding errors of Map's result, as Map.Size does.
	Size(at Place, x []float64) []float64
	// Grad returns the gradient of x from dy, the gradient of Map's result, and adds the
	// gradient of the learned numbers to dp.
	Grad(at Place, x, dy, dp []float64) []float64
	// Learned returns the learned numbers, for rows of width d.
	Learned(d int) []float64
}

// Place says which row is mapped: a query or a key, and of which query head. First is the first
// query head that shares the key head; for keys, Head is First.
type Place struct {
	Keys        bool
	Head, First int
}

// placeOf returns the place of query head h, or of the keys that it reads.
func (c *Call) placeOf(h int, keys bool) Place {
	group := c.Q.H / c.K.H
	p := Place{keys, h, h / group * group}
	if keys {
		p.Head = p.First
	}
	return p
}

// size is the absolute value of a mapped number as conditions have it.
func (m *Map) size(x, mapped float64) float64 {
	if m.Size == nil {
		return math.Abs(mapped)
	}
	return m.Size(x)
}

// EluPlusOne is elu(x) + 1 (Linear, eq. 7).
var EluPlusOne = &Map{
	F: func(x float64) float64 {
		if x > 0 {
			return x + 1
		}
		return math.Exp(x)
	},
	DF: func(x float64) float64 {
		if x > 0 {
			return 1
		}
		return math.Exp(x)
	},
}

// ReLU is max(x, 0).
var ReLU = &Map{
	F: func(x float64) float64 { return math.Max(x, 0) },
	DF: func(x float64) float64 {
		if x > 0 {
			return 1
		}
		return 0
	},
	Size: math.Abs,
}

// SquaredReLU is max(x, 0)² (So et al. 2021, Primer, section 3.1).
var SquaredReLU = &Map{
	F:  func(x float64) float64 { return math.Max(x, 0) * math.Max(x, 0) },
	DF: func(x float64) float64 { return 2 * math.Max(x, 0) },

	Size: func(x float64) float64 { return x * x },
}

// centre returns x, less its mean where the norm subtracts it, and the length
// that divides it. A length of 0 means that the row cannot be normalised: all
// its channels are equal, or zero, and it becomes zero.
func (n Norm) centre(x []float64) ([]float64, float64) {
	y := append([]float64{}, x...)
	if n == Standard || n == Bounded {
		var mean float64
		equal := true
		for _, v := range x {
			mean += v / float64(len(x))
			equal = equal && v == x[0]
		}
		for c := range y {
			y[c] -= mean
			if equal {
				y[c] = 0
			}
		}
	}
	length := euclideanNorm(y)
	if n == Standard {
		length /= math.Sqrt(float64(len(x)))
	}
	return y, length
}

func (n Norm) apply(x []float64) []float64 {
	if n == NoNorm {
		return append([]float64{}, x...)
	}
	y, length := n.centre(x)
	for c := range y {
		if length != 0 {
			y[c] /= length
		}
	}
	return y
}

// grad returns the gradient by x of a function whose gradient by apply(x) is
// dy: first through the division by the length, whose own derivative is
// x̂/(its number of shares), then through the mean.
func (n Norm) grad(x, dy []float64) []float64 {
	if n == NoNorm {
		return append([]float64{}, dy...)
	}
	dx := make([]float64, len(x))
	y, length := n.centre(x)
	if length == 0 {
		return dx
	}
	shares := 1.0 // |x̂|²
	if n == Standard {
		shares = float64(len(x))
	}
	along := dotProduct(dy, y) / length / shares
	var mean float64
	for c := range dx {
		dx[c] = (dy[c] - y[c]/length*along) / length
		mean += dx[c] / float64(len(x))
	}
	if n != Unit {
		for c := range dx {
			dx[c] -= mean
		}
	}
	return dx
}

// rotateRow turns the channel pairs (j, j+D/2) by position·theta^(-2j/D)
// (RoFormer, eq. 34). The last channel of an odd D stays.
func rotateRow(x []float64, theta float64, position int) []float64 {
	y := append([]float64{}, x...)
	if theta == 0 {
		return y
	}
	half := len(x) / 2
	for j := range half {
		sin, cos := math.Sincos(float64(position) * math.Pow(theta, -2*float64(j)/float64(len(x))))
		y[j] = x[j]*cos - x[j+half]*sin
		y[j+half] = x[j]*sin + x[j+half]*cos
	}
	return y
}

// linear is the part of a normalised row's way that precedes the map.
func (m *Mechanism) linear(c *Call, x []float64, position int, factor float64, kept []float64) []float64 {
	y := rotateRow(x, c.Theta, position)
	for e := range y {
		y[e] *= factor
	}
	return scaleRow(y, kept)
}

// prepare takes a normalised row to the row of the product. kept are the factors
// of its channels by dropout; nil: none.
func (m *Mechanism) prepare(c *Call, at Place, x []float64, position int, factor float64, kept []float64) []float64 {
	y := m.linear(c, x, position, factor, kept)
	if m.Features != nil {
		return m.Features.Map(at, y)
	}
	if m.Map != nil {
		for e := range y {
			y[e] = m.Map.F(y[e])
		}
	}
	return y
}

// size returns the absolute values of the prepared row a, as Cond takes them.
func (m *Mechanism) size(c *Call, at Place, x []float64, position int, factor float64, kept, a []float64) []float64 {
	if m.Map == nil && m.Features == nil {
		return absRow(a)
	}
	y := m.linear(c, x, position, factor, kept)
	if m.Features != nil {
		return m.Features.Size(at, y)
	}
	for e := range y {
		y[e] = m.Map.size(y[e], a[e])
	}
	return y
}

// prepareGrad takes the gradient da of a prepared row back to the normalised
// row, and returns the derivative by the factor beside it.
func (m *Mechanism) prepareGrad(c *Call, at Place, x []float64, position int, factor float64, kept, da, dp []float64) (dx []float64, dfactor float64) {
	dy := append([]float64{}, da...)
	if m.Features != nil {
		dy = m.Features.Grad(at, m.linear(c, x, position, factor, kept), da, dp)
	}
	if m.Map != nil {
		for e, y := range m.linear(c, x, position, factor, kept) {
			dy[e] *= m.Map.DF(y)
		}
	}
	dfactor = dotProduct(scaleRow(dy, kept), m.linear(c, x, position, 1, nil))
	for e := range dy {
		dy[e] *= factor
	}
	return rotateRow(dy, c.Theta, -position), dfactor
}
