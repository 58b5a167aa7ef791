// Package check measures errors and says how large they may be. Limits are in units of the rounding
// u of the element type, as derived in docs/numerics.md. Tests and commands import it, never a
// library package.
package check

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"runtime"
	"slices"

	"github.com/farfield-ml/farfield/internal/framed"
	"github.com/farfield-ml/farfield/internal/kernel"
)

// UnitRoundoff returns u, the largest relative error of one rounding to T.
func UnitRoundoff[T kernel.Float]() float64 {
	var x T
	if _, single := any(x).(float32); single {
		return 0x1p-24
	}
	return 0x1p-53
}

// Limits holds the largest errors of a form, as factors for Output and Gradient.
type Limits struct{ unit, output, gradient float64 }

// newLimits turns numbers of roundings into factors. In float64 the reference
// errs as much as what it judges, so its limits have a floor: 1e-14 of outputs
// and 1e-12 of gradients, about a hundred and ten thousand roundings.
func newLimits[T kernel.Float](output, gradient float64) Limits {
	u := UnitRoundoff[T]()
	if u < 0x1p-24 {
		return Limits{u, max(1e-14, output*u), max(1e-12, gradient*u)}
	}
	return Limits{u, output * u, gradient * u}
}

// DirectLimits returns the limits of a form that sums weights, which are polynomials of
// degree p of products of rows: a rounding of a product counts p times in its
// p-th power, and Horner's rule has one for each degree. Of other weights p is 2.
func DirectLimits[T kernel.Float](p int) Limits {
	x := max(8, 4+2*float64(p))
	return newLimits[T](x, x)
}

// LinearLimits returns the limits of a form that sums f packed features over chunks
// of c tokens, one multiply-add after another.
func LinearLimits[T kernel.Float](f, c int) Limits {
	x := 8 + math.Sqrt(float64(f)) + math.Sqrt(float64(c))
	return newLimits[T](x, x)
}

// SoftmaxLimits returns the limits of softmax, whose weights all have one sign.
func SoftmaxLimits[T kernel.Float]() Limits { return newLimits[T](8, 16) }

// HeadMatrixLimits returns the limits of a mechanism of whole heads, whose longest sums have
// the given number of terms. The measured loss of precision of its steps counts as the
// condition.
func HeadMatrixLimits[T kernel.Float](terms int) Limits {
	x := 8 + math.Sqrt(float64(terms))
	return newLimits[T](x, x)
}

// Output is the largest error of an output row: cond is the row's condf (1 for
// softmax), size the largest value in sight.
func (l Limits) Output(cond, size float64) float64 { return l.output * cond * size }

// Gradient is the largest error of a gradient array: cond is the largest condf
// of the call, size the largest gradient in sight.
func (l Limits) Gradient(cond, size float64) float64 { return l.gradient * cond * size }

// Sum is the largest error of a sum over n keys, as a denominator is, whose
// absolute terms add up to terms. It may be taken one key after another.
func (l Limits) Sum(n int, terms float64) float64 {
	return max(l.output, (8+math.Sqrt(float64(n)))*l.unit) * terms
}

// MaxAbs returns the largest absolute value of x [n], NaN if there is one.
func MaxAbs[T kernel.Float](x []T) float64 {
	var m float64
	for _, v := range x {
		m = max(m, math.Abs(float64(v)))
	}
	return m
}

// ErrorRatio returns the largest |got-want| of got [n] and want [n] in units of limit. Values
// that are not finite, and errors where none is allowed, give +Inf.
func ErrorRatio[T kernel.Float](got []T, want []float64, limit float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var worst float64
	for i, g := range got {
		d := math.Abs(float64(g) - want[i])
		switch {
		case d == 0:
		case d <= math.MaxFloat64 && limit > 0:
			worst = max(worst, d/limit)
		default:
			return math.Inf(1)
		}
	}
	return worst
}

// NumericGradient returns the gradient [n] of f at x [n] by central differences of fourth
// order. It changes x in place for each call of f and restores it.
func NumericGradient[T kernel.Float](f func() float64, x []T) []float64 {
	return NumericGradientBy(1e-3, f, x)
}

// NumericGradientBy is Gradient at x [n] with steps of the given size, relative to elements
// beyond 1. Larger steps reduce the effect of f's roundings, smaller ones the effect of
// its higher derivatives.
func NumericGradientBy[T kernel.Float](step float64, f func() float64, x []T) []float64 {
	g := make([]float64, len(x))
	for i, at := range x {
		h := step * max(1, math.Abs(float64(at)))
		value := func(step float64) float64 {
			x[i] = T(float64(at) + step*h)
			return f()
		}
		g[i] = (8*(value(1)-value(-1)) - (value(2) - value(-2))) / (12 * h)
		x[i] = at
	}
	return g
}

// AllocatedBytes returns the bytes that f allocates, and whatever else runs beside it.
func AllocatedBytes(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// SealSnapshot returns b with the CRC-32C of the bytes before it in its last four bytes, as
// snapshots end. Shorter b is returned as it is.
func SealSnapshot(b []byte) []byte {
	b = slices.Clone(b)
	if n := len(b) - 4; n >= 0 {
		binary.LittleEndian.PutUint32(b[n:], crc32.Checksum(b[:n], framed.Castagnoli))
	}
	return b
}

// SealSession returns the snapshot b of a session of package model with the right checksums
// of its layers and of itself.
func SealSession(b []byte) []byte {
	const header = len("farfield session") + 52
	b = slices.Clone(b)
	for layers := b[min(header, len(b)):max(min(header, len(b)), len(b)-4)]; len(layers) >= 8; {
		n := binary.LittleEndian.Uint64(layers)
		if layers = layers[8:]; n > uint64(len(layers)) {
			break
		}
		copy(layers, SealSnapshot(layers[:n]))
		layers = layers[n:]
	}
	return SealSnapshot(b)
}

// LiveBytes returns the bytes of live objects.
func LiveBytes() int64 {
	runtime.GC()
	runtime.GC() // the second drops the content of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
