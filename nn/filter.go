package nn

import (
	"math"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// filter computes the filters of long convolutions from positions alone (Poli et al.
// 2023, Hyena, arXiv 2302.10866, section 3.3). A filter is an MLP with sines, of
// features of the position n,
//
//	t = n/(Context-1), cos(2πn·f/Context), -sin(2πn·f/Context) for frequencies f
//
// times a window e^(-δ_c·t), whose δ lies evenly from slow to fast channels.
type filter struct {
	Hidden []Linear     // the first from the features
	Freq   *param.Param // [units] frequencies of the sines after each hidden layer
	Out    Linear       // [width·filters, units]

	Context     int
	Features    int     // 1 + two for each frequency
	WindowRates []float // [width] -δ of the windows
}

// Windows fall to filterTarget within these shares of the context.
const (
	filterTarget           = 1e-2
	filterFast, filterSlow = 0.3, 1.5
)

// filterLayers is the number of layers with sines.
const filterLayers = 3

// newFilter returns a filter that computes the given number of filters for every channel.
func newFilter(m *mixerArgs, filters, features, units int, freq float64) filter {
	f := filter{Context: m.Context, Features: features, WindowRates: make([]float, m.Width)}
	for c := range f.WindowRates {
		f.WindowRates[c] = float(windowRate(c, m.Width))
	}
	in := features
	for _, name := range []string{"filter.0", "filter.1", "filter.2"}[:filterLayers] {
		f.Hidden = append(f.Hidden, Linear{W: m.New(name+".weight", true, FanInInit(in), units, in), B: m.New(name+".bias", false, FanInInit(in), units)})
		in = units
	}
	f.Freq = m.New("filter.freq", false, constantInit(freq), units)
	f.Out = Linear{W: m.New("filter.out.weight", true, FanInInit(units), filters*m.Width, units)}
	return f
}

// FanInInit draws elements uniformly from -1/√n to 1/√n.
func FanInInit(n int) Initializer {
	return func(key rng.Key, i uint64) float64 { return (2*key.Float64(i) - 1) / math.Sqrt(float64(n)) }
}

// filterTrace holds the intermediate results of filter.Forward for Backward.
type filterTrace struct {
	features []float               // [N,Features]
	pre, act [filterLayers][]float // [N,units] before and after the sines
	h        []float               // [N,filters·width]
}

// Forward returns the filters [n,filters·width] at n positions from start on, in memory of tr.
func (f *filter) Forward(start, n int, tr *filterTrace) tensor.Mat {
	x := resizeMatrix(&tr.features, n, f.Features)
	for i := range n {
		f.setFeatures(x.Row(i), start+i)
	}
	for l := range f.Hidden {
		pre, act := resizeMatrix(&tr.pre[l], n, f.countUnits()), resizeMatrix(&tr.act[l], n, f.countUnits())
		f.Hidden[l].Forward(pre, x, false)
		par.Run(n, normRows, sineWork*float64(len(pre.Data)), sines{f, act, pre})
		x = act
	}
	h := resizeMatrix(&tr.h, n, f.Out.W.Shape[0])
	f.Out.Forward(h, x, false)
	par.Run(n, normRows, siluWork*float64(n*len(f.WindowRates)), windows{f, h, start})
	return h
}

func (f *filter) countUnits() int { return f.Hidden[0].W.Shape[0] }

// weightSize returns the number of weights that each position is multiplied with.
func (f *filter) weightSize() float64 {
	n := f.Out.weightSize()
	for i := range f.Hidden {
		n += f.Hidden[i].weightSize()
	}
	return n
}

// placeTime returns t of position n.
func (f *filter) placeTime(n int) float64 { return float64(n) / float64(max(f.Context-1, 1)) }

// setFeatures sets x to the features of position n.
func (f *filter) setFeatures(x []float, n int) {
	bands := (f.Features - 1) / 2
	x[0] = float(f.placeTime(n))
	for j := range bands {
		freq := 1e-4
		if bands > 1 {
			freq += (float64(bands-1) - 1e-4) * float64(j) / float64(bands-1)
		}
		sin, cos := math.Sincos(2 * math.Pi * freq * float64(n) / float64(f.Context))
		x[1+j], x[1+bands+j] = float(cos), float(-sin)
	}
}

// sineWork is the cost of a sine in operations.
const sineWork = 100

// sines sets y = sin(freq∘x).
type sines struct {
	f    *filter
	y, x tensor.Mat
}

func (f *sines) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		y := f.y.Row(i)
		for j, x := range f.x.Row(i) {
			y[j] = float(math.Sin(float64(f.f.Freq.Data[j]) * float64(x)))
		}
	}
}

// windows multiplies filters by their windows.
type windows struct {
	f     *filter
	h     tensor.Mat
	start int
}

func (f *windows) RunRange(i0, i1 int) {
	t, falls := kernel.Active[float](), f.f.WindowRates
	ar := arena.Acquire()
	defer ar.Release()
	window := arena.Take[float](ar, len(falls))
	for i := i0; i < i1; i++ {
		row := f.h.Row(i)
		t.Scale(window, float(f.f.placeTime(f.start+i)), falls)
		t.Exp(window, window, 0)
		for at := 0; at < len(row); at += len(window) {
			t.Mul(row[at:][:len(window)], row[at:], window)
		}
	}
}

// windowRate returns the logarithm of the window of channel c at t = 1.
func windowRate(c, width int) float64 {
	slow, fast := math.Log(filterTarget)/filterSlow, math.Log(filterTarget)/filterFast
	if width == 1 {
		return slow
	}
	return slow + (fast-slow)*float64(c)/float64(width-1)
}

// Backward adds to the gradients of the weights, given the gradient dh [n,filters·width] of
// the filters at positions from 0 on. It overwrites dh.
func (f *filter) Backward(dh tensor.Mat, tr *filterTrace) {
	ar := arena.Acquire()
	defer ar.Release()
	n, units := dh.Rows, f.countUnits()
	par.Run(n, normRows, siluWork*float64(n*len(f.WindowRates)), windows{f, dh, 0})
	d := viewMatrix(arena.Take[float](ar, n*units), n, units)
	pieces := (n + normRows - 1) / normRows
	for l := filterLayers - 1; l >= 0; l-- {
		act, pre := viewMatrix(tr.act[l], n, units), viewMatrix(tr.pre[l], n, units)
		if l == filterLayers-1 {
			f.Out.Backward(d, dh, act, false)
		} else {
			next := viewMatrix(arena.Take[float](ar, n*units), n, units)
			f.Hidden[l+1].Backward(next, d, act, false)
			d = next
		}
		parts := viewMatrix(arena.TakeZeros[float](ar, pieces*units), pieces, units)
		par.Run(n, normRows, sineWork*float64(len(pre.Data)), sinesGrad{f, d, pre, parts})
		addRows(f.Freq.Grad, parts)
	}
	addWeights(weightGrad{&f.Hidden[0], d, viewMatrix(tr.features, n, f.Features)})
}

// sinesGrad replaces d, the gradient of sin(freq∘x), by the gradient of x, and sums the
// gradient of freq in parts.
type sinesGrad struct {
	f           *filter
	d, x, parts tensor.Mat
}

func (f *sinesGrad) RunRange(i0, i1 int) {
	part := f.parts.Row(i0 / normRows)
	for i := i0; i < i1; i++ {
		d := f.d.Row(i)
		for j, x := range f.x.Row(i) {
			freq := f.f.Freq.Data[j]
			c := d[j] * float(math.Cos(float64(freq)*float64(x)))
			part[j] += c * x
			d[j] = c * freq
		}
	}
}
