package fourier

import (
	"math"
	"math/bits"
	"math/cmplx"
	"testing"

	"github.com/farfield-ml/farfield/rng"
)

func numbers(seed uint64, n int) []complex128 {
	x := make([]complex128, n)
	for i := range x {
		x[i] = complex(rng.New(seed).Normal(uint64(2*i)), rng.New(seed).Normal(uint64(2*i+1)))
	}
	return x
}

func reversed(i, n int) int { return int(bits.Reverse64(uint64(i)) >> (65 - bits.Len(uint(n)))) }

func TestTransformIsItsDefinition(t *testing.T) {
	for n := 1; n <= 512; n *= 2 {
		x := numbers(1, n)
		y := append([]complex128{}, x...)
		NewTransform(n).Forward(y)
		for i := range n {
			f := 0
			if n > 1 {
				f = reversed(i, n)
			}
			var want complex128
			for k, a := range x {
				want += a * cmplx.Rect(1, -2*math.Pi*float64(k*f%n)/float64(n))
			}
			if d := cmplx.Abs(y[i] - want); d > 1e-13*float64(n) {
				t.Errorf("n = %d, frequency %d: off by %v", n, f, d)
			}
			if p := PartnerIndex(i); n > 1 && reversed(p, n) != (n-f)%n {
				t.Errorf("n = %d: the partner of frequency %d is %d", n, f, reversed(p, n))
			}
		}
		NewTransform(n).Inverse(y)
		for i := range x {
			if d := cmplx.Abs(y[i]/complex(float64(n), 0) - x[i]); d > 1e-15*float64(bits.Len(uint(n))+1) {
				t.Errorf("n = %d: number %d comes back off by %v", n, i, d)
			}
		}
	}
}

func TestPairsAreTwoSpectra(t *testing.T) {
	const n = 64
	z := numbers(2, n)
	re, im := make([]complex128, n), make([]complex128, n)
	for i, x := range z {
		re[i], im[i] = complex(real(x), 0), complex(imag(x), 0)
	}
	for _, x := range [][]complex128{z, re, im} {
		NewTransform(n).Forward(x)
	}
	for i := range z {
		a, b := SeparatePair(z[i], z[PartnerIndex(i)])
		if d := max(cmplx.Abs(a-re[i]), cmplx.Abs(b-im[i])); d > 1e-13 {
			t.Errorf("place %d is off by %v", i, d)
		}
	}
}

// The error of long transforms grows with the number of stages at most.
func TestLongTransformsComeBack(t *testing.T) {
	const n = 1 << 17
	x := numbers(3, n)
	y := append([]complex128{}, x...)
	NewTransform(n).Forward(y)
	NewTransform(n).Inverse(y)
	var worst float64
	for i := range x {
		worst = max(worst, cmplx.Abs(y[i]/n-x[i]))
	}
	if worst > 17*0x1p-52 {
		t.Errorf("off by %v", worst)
	}
}

func TestConvolutionLengthDoesNotWrapAround(t *testing.T) {
	for n := 1; n < 300; n++ {
		if l := ConvolutionLength(n); l < 2*n-1 || l&(l-1) != 0 || l >= 4*n {
			t.Errorf("%d numbers: %d", n, l)
		}
	}
}

func BenchmarkForward(b *testing.B) {
	x := numbers(4, 8192)
	for b.Loop() {
		NewTransform(8192).Forward(x)
		NewTransform(8192).Inverse(x)
		for i := range x {
			x[i] /= 8192
		}
	}
}
