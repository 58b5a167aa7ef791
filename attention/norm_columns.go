package attention

import (
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// normalise normalises the columns of x [d, ld] and multiplies them by scale.
func normalise[T tensor.Float](t *kernel.Table[T], norm Norm, x []T, ld, d, n int, scale T) {
	if norm == NoNorm {
		scaleColumns(t, x, ld, d, n, scale)
		return
	}
	length := scale * T(norm.MaxLen(d))
	if isCentred(norm) {
		t.Standardise(x, ld, d, n, length)
	} else {
		t.Normalise(x, ld, d, n, length)
	}
}

// normaliseGrad replaces dy, the gradient of the normalised columns of x, by the
// gradient of x. It overwrites x.
func normaliseGrad[T tensor.Float](t *kernel.Table[T], norm Norm, dy, x []T, ld, d, n int, scale T) {
	if norm == NoNorm {
		scaleColumns(t, dy, ld, d, n, scale)
		return
	}
	if isCentred(norm) {
		t.Centre(x, ld, d, n)
		t.Centre(dy, ld, d, n)
	}
	t.NormaliseGrad(dy, x, ld, d, n, scale*T(norm.MaxLen(d)))
}

func scaleColumns[T tensor.Float](t *kernel.Table[T], x []T, ld, d, n int, scale T) {
	if scale == 1 {
		return
	}
	for c := range d {
		row := x[c*ld:][:n]
		t.Scale(row, scale, row)
	}
}

// normStats are what is known of the queries or keys of one head of a
// sequence. Tokens that do not exist take no part in them.
type normStats struct {
	mean   []float64 // that is subtracted: of each channel, or one for all; nil: none
	length float64   // greatest 2-norm of a centred row
	place  int       // the first token with that norm
}

// normaliseWide is normalise with statistics.
func normaliseWide[T tensor.Float](t *kernel.Table[T], norm Norm, s *normStats, x []T, ld, d, n int, scale T) {
	factor, _ := invertLength(norm, s.length)
	if norm == ChannelCentred {
		t.Centre(x, ld, d, n)
	}
	for c := range d {
		row := x[c*ld:][:n]
		var mean float64
		switch {
		case len(s.mean) == 1:
			mean = s.mean[0]
		case s.mean != nil:
			mean = s.mean[c]
		}
		for i, y := range row {
			row[i] = T((float64(y) - mean) * factor * float64(scale))
		}
	}
}

// centreRow sets dst to x less its mean.
func centreRow[T tensor.Float](dst []float64, x []T, norm Norm, s *normStats) {
	var mean float64
	switch {
	case norm == ChannelCentred:
		for _, y := range x {
			mean += float64(y) - float64(x[0])
		}
		mean = mean/float64(len(x)) + float64(x[0])
	case len(s.mean) == 1:
		mean = s.mean[0]
	}
	for c, y := range x {
		if len(s.mean) > 1 {
			mean = s.mean[c]
		}
		dst[c] = float64(y) - mean
	}
}
