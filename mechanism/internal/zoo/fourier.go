package zoo

import (
	"fmt"
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// fourierAttention computes heads of fourier. Since the product of D factors below 1
// may underflow, weights are computed from the sum of logarithms, minus the largest of
// the row. All of it is in float64, since a float32 has no correct digits near the
// zeros of the sine.
type fourierAttention struct {
	setting string
	eps     float64
	scaled  bool
	params  param.Set
	r       *param.Param // [1] or [D]
}

func NewFourier(r *entry.Reader) (headwise.Function, error) {
	start, err := r.Positive("R", "1")
	if err != nil {
		return nil, err
	}
	if start == 0 {
		start = 1
	}
	channels, err := r.Bool("channels")
	if err != nil {
		return nil, err
	}
	eps, err := r.Positive("eps", "0")
	if err != nil {
		return nil, err
	}
	scaled, err := r.Bool("scaled")
	if err != nil {
		return nil, err
	}
	n := 1
	if channels {
		if n = r.Width; n == 0 {
			return nil, fmt.Errorf("fourier: setting channels=true: needs the width of heads")
		}
	}
	f := &fourierAttention{
		setting: fmt.Sprintf("fourier channels=%t eps=%s scaled=%t", channels, strconv.FormatFloat(eps, 'g', -1, 64), scaled),
		eps:     eps, scaled: scaled,
	}
	f.r = f.params.New("R", false, n)
	for i := range f.r.Data {
		f.r.Data[i] = float(start)
	}
	return f, nil
}

func (f *fourierAttention) Traits() attention.Traits {
	return attention.Traits{Name: "fourier", Positive: true, Causal: true}
}

func (f *fourierAttention) Setting() string       { return f.setting }
func (f *fourierAttention) Params() *param.Set    { return &f.params }
func (f *fourierAttention) Constants() *param.Set { return nil }

func (f *fourierAttention) Check(c *attention.Call) error {
	if n := len(f.r.Data); n > 1 && n != c.Q.D {
		return fmt.Errorf("%s: has %d elements, D is %d", f.r.Name, n, c.Q.D)
	}
	return nil
}

// inverseWidth returns R of channel d.
func (f *fourierAttention) inverseWidth(d int) float64 { return float64(f.r.Data[d%len(f.r.Data)]) }

// rowSines holds R∘x for rows x, with sines and cosines, each [rows·D].
type rowSines struct {
	x, sin, cos []float64 // [rows·D]
	d           int
}

// computeSines returns the sines of rows x [rows, D] in scratch memory.
func (f *fourierAttention) computeSines(ar *arena.Arena, x tensor.Mat) rowSines {
	n := x.Rows * x.Cols
	w := rowSines{arena.Take[float64](ar, n), arena.Take[float64](ar, n), arena.Take[float64](ar, n), x.Cols}
	for i := range x.Rows {
		for d, y := range x.Row(i) {
			at := i*x.Cols + d
			w.x[at] = f.inverseWidth(d) * float64(y)
			w.sin[at], w.cos[at] = math.Sincos(w.x[at])
		}
	}
	return w
}

// tokenRow returns R∘x, sines and cosines of row i.
func (w *rowSines) tokenRow(i int) (x, sin, cos []float64) {
	at := i * w.d
	return w.x[at:][:w.d], w.sin[at:][:w.d], w.cos[at:][:w.d]
}

// seriesLimit is the difference below which the series of sin(x)/x is used. Five terms
// are exact there, and the sine of a difference of angles has lost its digits.
const seriesLimit = 0x1p-3

// factorsPerLog is the number of ratios sin(x)/x that are multiplied before taking
// their logarithm. The product of 4 ratios does not underflow.
const factorsPerLog = 4

// logWeights sets row [keys] to the logarithms of the weights of query i for the keys
// that it sees, and returns the largest. Elements of other keys are left unchanged.
func (f *fourierAttention) logWeights(h *headwise.Head, q, k *rowSines, i int, row []float64) float64 {
	top := math.Inf(-1)
	qx, qs, qc := q.tokenRow(i)
	for j := range h.VisibleKeys(i) {
		if !h.IsUnmasked(j) {
			continue
		}
		kx, ks, kc := k.tokenRow(j)
		var sum float64
		sines, arcs := 1.0, 1.0
		for d, a := range qx {
			x := a - kx[d]
			if math.Abs(x) < seriesLimit {
				y := x * x
				sines *= 1 - y/6*(1-y/20*(1-y/42*(1-y/72)))
			} else {
				sines *= qs[d]*kc[d] - qc[d]*ks[d]
				arcs *= x
			}
			if d%factorsPerLog == factorsPerLog-1 {
				sum += math.Log(math.Abs(sines / arcs))
				sines, arcs = 1, 1
			}
		}
		row[j] = 4 * (sum + math.Log(math.Abs(sines/arcs)))
		top = max(top, row[j])
	}
	return top
}

// normaliseWeights turns logarithms row [keys] into weights, divided by their sum and
// eps, and returns the share of eps. some is false if all weights are 0.
func (f *fourierAttention) normaliseWeights(h *headwise.Head, i int, row []float64, top float64) (small float64, some bool) {
	if f.eps > 0 {
		small = math.Log(f.eps)
		for d := 0; f.scaled && d < h.Q.Cols; d++ {
			small -= 4 * math.Log(math.Abs(f.inverseWidth(d)))
		}
		// Relative to the larger of weights and eps nothing overflows.
		top = max(top, small)
		small = math.Exp(small - top)
	}
	sum := small
	for j := range h.VisibleKeys(i) {
		if h.IsUnmasked(j) {
			row[j] = math.Exp(row[j] - top)
			sum += row[j]
		}
	}
	if math.IsInf(top, -1) {
		return 0, false
	}
	for j := range h.VisibleKeys(i) {
		row[j] /= sum
	}
	return small / sum, true
}

func (f *fourierAttention) Forward(h *headwise.Head) {
	ar := h.Scratch
	q, k := f.computeSines(ar, h.Q), f.computeSines(ar, h.K)
	row, o := arena.Take[float64](ar, h.K.Rows), arena.Take[float64](ar, h.V.Cols)
	for i := range h.Q.Rows {
		top := f.logWeights(h, &q, &k, i, row)
		out := h.Out.Row(i)
		if _, some := f.normaliseWeights(h, i, row, top); !some {
			clear(out)
			h.UnseenQueries++
			continue
		}
		clear(o)
		for j := range h.VisibleKeys(i) {
			if !h.IsUnmasked(j) {
				continue
			}
			for e, y := range h.V.Row(j) {
				o[e] += row[j] * float64(y)
			}
		}
		for e := range o {
			out[e] = float(o[e])
		}
	}
}

func (f *fourierAttention) Backward(h *headwise.Head, g *headwise.Grads) {
	ar := h.Scratch
	n, m, d := h.Q.Rows, h.K.Rows, h.Q.Cols
	q, k := f.computeSines(ar, h.Q), f.computeSines(ar, h.K)
	row, dw, dx := arena.Take[float64](ar, m), arena.Take[float64](ar, m), arena.Take[float64](ar, d)
	dk, dv := arena.TakeZeros[float64](ar, m*d), arena.TakeZeros[float64](ar, m*h.V.Cols)
	dr := arena.TakeZeros[float64](ar, d)
	for i := range n {
		clear(dx)
		top := f.logWeights(h, &q, &k, i, row)
		small, some := f.normaliseWeights(h, i, row, top)
		do := g.DOut.Row(i)
		var along float64
		for j := 0; j < h.VisibleKeys(i) && some; j++ {
			if !h.IsUnmasked(j) {
				continue
			}
			var sum float64
			for e, y := range do {
				sum += float64(y) * float64(h.V.Row(j)[e])
				dv[j*len(do)+e] += row[j] * float64(y)
			}
			dw[j] = sum
			along += row[j] * sum
		}
		qx, qs, qc := q.tokenRow(i)
		for j := 0; j < h.VisibleKeys(i) && some; j++ {
			dlog := row[j] * (dw[j] - along)
			if !h.IsUnmasked(j) || dlog == 0 {
				continue
			}
			kx, ks, kc := k.tokenRow(j)
			for c, a := range qx {
				// The derivative of 4·ln|sin(x)/x|, x = R(q-k), is 4·(cot(x) - 1/x).
				x := a - kx[c]
				var slope float64
				if math.Abs(x) < seriesLimit {
					y := x * x
					slope = -x / 3 * (1 + y/15*(1+y*2/21*(1+y/10*(1+y*10/99))))
				} else {
					slope = (qc[c]*kc[c]+qs[c]*ks[c])/(qs[c]*kc[c]-qc[c]*ks[c]) - 1/x
				}
				slope *= 4 * dlog
				dx[c] += slope
				dk[j*d+c] -= slope
				dr[c] += slope * x
			}
		}
		for c := range dx {
			g.DQ.Row(i)[c] = float(f.inverseWidth(c) * dx[c])
			if f.scaled {
				// ln(eps/R^(4D)) has the derivative -4/R in each channel; the slopes are
				// divided by R below.
				dr[c] += 4 * small * along
			}
		}
	}
	for j := range m {
		for c := range d {
			g.DK.Row(j)[c] = float(f.inverseWidth(c) * dk[j*d+c])
		}
		for e := range h.V.Cols {
			g.DV.Row(j)[e] = float(dv[j*h.V.Cols+e])
		}
	}
	for c := range d {
		if r := f.inverseWidth(c); r != 0 {
			g.Params[0][c%len(f.r.Data)] += float(dr[c] / r)
		}
	}
}

func (f *fourierAttention) Cost(s attention.Shape) headwise.Cost {
	pairs := float64(s.N) * float64(s.M)
	if s.Causal { // the last n queries see m-n+1 to m keys, those before them none
		n := float64(min(s.N, s.M))
		pairs = n * (float64(s.M) - (n-1)/2)
	}
	return headwise.Cost{
		FLOPs: pairs * float64(6*s.D+2*s.Dv+40),
		Bytes: 8 * float64(3*(s.N+s.M)*s.D+s.M),
	}
}
