package nn

import (
	"unsafe"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/fourier"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// A long convolution is y_t = Σ_{j≤t} h_j∘x_{t-j} + d∘x_t over all tokens of a
// sequence, with filters h [N,width]. Fourier transforms compute it in O(N log N), two
// channels at a time as the real and the imaginary part of one sequence. They are in float64;
// results are rounded once.

// longConv sets y [B·N,width] to the long convolution of x [B·N,width].
func longConv(y, x, h tensor.Mat, d []float, b int) {
	n := x.Rows / b
	size := fourier.ConvolutionLength(n)
	pairs := (x.Cols + 1) / 2
	work := float64(pairs) * float64(1+2*b) * fourier.TransformFLOPs(size)
	par.Run(pairs, 1, work, longForward{y, x, h, d, b, n, size})
}

// longForward computes longConv for pairs of channels.
type longForward struct {
	y, x, h    tensor.Mat
	d          []float
	b, n, size int
}

func (f *longForward) RunRange(p0, p1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	h, z := takeComplexes(ar, f.size), takeComplexes(ar, f.size)
	t := fourier.NewTransform(f.size)
	for p := p0; p < p1; p++ {
		c := 2 * p
		loadPair(h, f.h, 0, f.n, c)
		t.Forward(h)
		for r := range f.b {
			loadPair(z, f.x, r*f.n, f.n, c)
			t.Forward(z)
			eachPair(f.size, func(i, j int) {
				ha, hb := fourier.SeparatePair(h[i], h[j])
				za, zb := fourier.SeparatePair(z[i], z[j])
				z[i], z[j] = joinSpectra(ha*za, hb*zb)
			})
			t.Inverse(z)
			f.storePair(f.y, f.x, z, r*f.n, c)
		}
	}
}

// storePair sets channels c and c+1 of y to z over its size, plus d∘x.
func (f *longForward) storePair(y, x tensor.Mat, z []complex128, row, c int) {
	scale := 1 / float64(f.size)
	for i := range f.n {
		to, from := y.Row(row+i), x.Row(row+i)
		to[c] = float(real(z[i])*scale + float64(f.d[c])*float64(from[c]))
		if c+1 < len(to) {
			to[c+1] = float(imag(z[i])*scale + float64(f.d[c+1])*float64(from[c+1]))
		}
	}
}

// longConvGrad sets dx [B·N,width] and dh [N,width], and adds to dd [width], given the gradient
// dy [B·N,width] of longConv. dx may be dy.
func longConvGrad(dx, dh, dy, x, h tensor.Mat, dd, d []float, b int) {
	n := x.Rows / b
	size := fourier.ConvolutionLength(n)
	pairs := (x.Cols + 1) / 2
	work := float64(pairs) * float64(2+3*b) * fourier.TransformFLOPs(size)
	par.Run(pairs, 1, work, longBackward{longForward{dx, x, h, d, b, n, size}, dh, dy, dd})
}

// longBackward computes longConvGrad for pairs of channels: dx_s = Σ_t dy_t∘h_{t-s} + d∘dy_s and
// dh_j = Σ_t dy_t∘x_{t-j}, the latter summed over the sequences in order.
type longBackward struct {
	longForward
	dh, dy tensor.Mat
	dd     []float
}

func (f *longBackward) RunRange(p0, p1 int) {
	ar := arena.Acquire()
	defer ar.Release()
	h, z, g, sum := takeComplexes(ar, f.size), takeComplexes(ar, f.size), takeComplexes(ar, f.size), takeComplexes(ar, f.size)
	t := fourier.NewTransform(f.size)
	for p := p0; p < p1; p++ {
		c := 2 * p
		loadPair(h, f.h, 0, f.n, c)
		t.Forward(h)
		clear(sum)
		var da, db float64
		for r := range f.b {
			loadPair(z, f.x, r*f.n, f.n, c)
			loadPair(g, f.dy, r*f.n, f.n, c)
			for i := range f.n {
				da += real(z[i]) * real(g[i])
				db += imag(z[i]) * imag(g[i])
			}
			t.Forward(z)
			t.Forward(g)
			eachPair(f.size, func(i, j int) {
				ha, hb := fourier.SeparatePair(h[i], h[j])
				za, zb := fourier.SeparatePair(z[i], z[j])
				ga, gb := fourier.SeparatePair(g[i], g[j])
				si, sj := joinSpectra(ga*complexConjugate(za), gb*complexConjugate(zb))
				sum[i] += si
				if i != j {
					sum[j] += sj
				}
				g[i], g[j] = joinSpectra(ga*complexConjugate(ha), gb*complexConjugate(hb))
			})
			t.Inverse(g)
			f.storePair(f.y, f.dy, g, r*f.n, c)
		}
		t.Inverse(sum)
		scale := 1 / float64(f.size)
		f.dd[c] += float(da)
		if c+1 < f.x.Cols {
			f.dd[c+1] += float(db)
		}
		for i := range f.n {
			to := f.dh.Row(i)
			to[c] = float(real(sum[i]) * scale)
			if c+1 < len(to) {
				to[c+1] = float(imag(sum[i]) * scale)
			}
		}
	}
}

// takeComplexes takes n complex numbers from the arena.
func takeComplexes(ar *arena.Arena, n int) []complex128 {
	x := arena.Take[float64](ar, 2*n)
	return unsafe.Slice((*complex128)(unsafe.Pointer(&x[0])), n)
}

// loadPair sets z to channels c and c+1 of n rows, followed by zeros.
func loadPair(z []complex128, x tensor.Mat, row, n, c int) {
	for i := range n {
		from := x.Row(row + i)
		im := 0.0
		if c+1 < len(from) {
			im = float64(from[c+1])
		}
		z[i] = complex(float64(from[c]), im)
	}
	clear(z[n:])
}

// eachPair calls f once for each pair of partner frequencies of a transform of length n, with
// their indices, which are equal if a frequency is its own partner.
func eachPair(n int, f func(i, j int)) {
	f(0, 0)
	if n > 1 {
		f(1, 1)
	}
	for low := 2; low < n; low *= 2 {
		for i := low; i < low+low/2; i++ {
			f(i, fourier.PartnerIndex(i))
		}
	}
}

// joinSpectra returns the spectrum of the sequence x + iy at a frequency and at its partner,
// where a and b are the spectra of the real sequences x and y at the frequency.
func joinSpectra(a, b complex128) (f, partner complex128) {
	a1, b1 := complexConjugate(a), complexConjugate(b)
	return a + complex(-imag(b), real(b)), a1 + complex(-imag(b1), real(b1))
}

func complexConjugate(x complex128) complex128 { return complex(real(x), -imag(x)) }

// lagBlock is the number of lags that are summed by themselves before the sum is added to the
// others.
const lagBlock = 64

// longSteps sets y [n,width] to the long convolution at the last n tokens of a sequence with
// inputs x [tokens,width]. Each token takes O(tokens).
func longSteps(y, x, h tensor.Mat, d []float) {
	work := 2 * float64(y.Rows) * float64(x.Rows) * float64(x.Cols)
	if f := (longStep{y, x, h, d}); work < par.MinWork {
		f.RunRange(0, y.Rows)
	} else {
		par.Run(y.Rows, 1, work, f)
	}
}

type longStep struct {
	y, x, h tensor.Mat
	d       []float
}

func (f *longStep) RunRange(i0, i1 int) {
	t := kernel.Active[float]()
	ar := arena.Acquire()
	defer ar.Release()
	part := arena.Take[float](ar, f.x.Cols)
	for i := i0; i < i1; i++ {
		at, y := f.x.Rows-f.y.Rows+i, f.y.Row(i)
		t.Mul(y, f.d, f.x.Row(at))
		for j := 0; j <= at; j += lagBlock {
			clear(part)
			for lag := j; lag <= min(j+lagBlock-1, at); lag++ {
				t.MulAdd(part, f.h.Row(lag), f.x.Row(at-lag))
			}
			t.Add(y, y, part)
		}
	}
}
