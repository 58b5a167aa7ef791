// Package fourier is the fast Fourier transform of sequences whose length is a power of two, in
// float64, for long convolutions (Cooley and Tukey 1965).
//
// Spectra are in bit-reversed order, the output of Forward and the input of Inverse; products of
// spectra need no other order. Two real sequences are transformed at once as real and imaginary
// parts. SeparatePair separates their spectra from frequencies f and n-f; PartnerIndex locates n-f.
package fourier

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
)

// Transform is a transform of one length. It may be used concurrently.
type Transform struct {
	n int
	// twiddle holds for every half h = 1, 2, 4, …, n/2, at h ≤ i < 2h,
	// e^(-πi(i-h)/h).
	twiddle []complex128
}

var transforms sync.Map // Transform by length

// NewTransform returns the transform of n numbers, from a cache. It panics if n is no power of two.
func NewTransform(n int) *Transform {
	if t, ok := transforms.Load(n); ok {
		return t.(*Transform)
	}
	if n < 1 || n&(n-1) != 0 {
		panic(fmt.Sprintf("fourier: %d is no power of two", n))
	}
	t := &Transform{n: n, twiddle: make([]complex128, n)}
	for half := 1; half < n; half *= 2 {
		for i := range half {
			sin, cos := math.Sincos(-math.Pi * float64(i) / float64(half))
			t.twiddle[half+i] = complex(cos, sin)
		}
	}
	transforms.Store(n, t)
	return t
}

// ConvolutionLength returns the length of transforms at which the convolution of two sequences of n
// numbers does not wrap around.
func ConvolutionLength(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(2*n-2))
}

// TransformFLOPs returns the number of floating-point operations of a transform of n numbers.
func TransformFLOPs(n int) float64 { return 5 * float64(n) * math.Log2(float64(n)) }

// Forward overwrites x [n] with its spectrum, Σ_t x_t·e^(-2πift/n) for frequency f, in
// bit-reversed order.
func (t *Transform) Forward(x []complex128) {
	x = x[:t.n]
	half := t.n / 2
	for ; half >= 2; half /= 4 { // two stages at a time
		quarter := half / 2
		w1, w2 := t.twiddle[half:][:half], t.twiddle[quarter:][:quarter]
		for at := 0; at < t.n; at += 2 * half {
			a, b := x[at:][:quarter], x[at+quarter:][:quarter]
			c, d := x[at+half:][:quarter], x[at+half+quarter:][:quarter]
			for i, w := range w2 {
				u := w1[i]
				ac, bd := a[i]+c[i], b[i]+d[i]
				p, q := (a[i]-c[i])*u, mulMinusI(b[i]-d[i])*u // w1[i+quarter] is -i·w1[i]
				a[i], b[i] = ac+bd, (ac-bd)*w
				c[i], d[i] = p+q, (p-q)*w
			}
		}
	}
	if half == 1 {
		for i := 0; i+1 < t.n; i += 2 {
			x[i], x[i+1] = x[i]+x[i+1], x[i]-x[i+1]
		}
	}
}

// mulMinusI returns -i·x.
func mulMinusI(x complex128) complex128 { return complex(imag(x), -real(x)) }

// Inverse overwrites a spectrum x [n] in bit-reversed order with n times its sequence.
func (t *Transform) Inverse(x []complex128) {
	x = x[:t.n]
	half := 1
	if bits.Len(uint(t.n))%2 == 0 { // an odd number of stages
		for i := 0; i+1 < t.n; i += 2 {
			x[i], x[i+1] = x[i]+x[i+1], x[i]-x[i+1]
		}
		half = 2
	}
	for ; half < t.n; half *= 4 { // two stages at a time
		w1, w2 := t.twiddle[half:][:half], t.twiddle[2*half:][:half]
		for at := 0; at < t.n; at += 4 * half {
			a, b := x[at:][:half], x[at+half:][:half]
			c, d := x[at+2*half:][:half], x[at+3*half:][:half]
			for i, w := range w1 {
				w, u := conjugate(w), conjugate(w2[i])
				p, q := b[i]*w, d[i]*w
				ab, amb := a[i]+p, a[i]-p
				cd, cmd := (c[i]+q)*u, -mulMinusI((c[i]-q)*u)
				a[i], b[i] = ab+cd, amb+cmd
				c[i], d[i] = ab-cd, amb-cmd
			}
		}
	}
}

// conjugate returns the complex conjugate of x.
func conjugate(x complex128) complex128 { return complex(real(x), -imag(x)) }

// PartnerIndex returns the index of frequency n-f, where i is the index of f.
func PartnerIndex(i int) int {
	if i == 0 {
		return 0
	}
	low := 1 << (bits.Len(uint(i)) - 1)
	return 3*low - 1 - i
}

// SeparatePair returns the values at frequency f of the spectra of the real and of the imaginary
// part of a sequence. f and partner are the values of the sequence's own spectrum at frequencies f
// and n-f.
func SeparatePair(f, partner complex128) (re, im complex128) {
	a, b, c, d := real(f)/2, imag(f)/2, real(partner)/2, -imag(partner)/2
	return complex(a+c, b+d), complex(b-d, c-a)
}
