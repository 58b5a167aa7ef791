package headtask

import (
	"github.com/farfield-ml/farfield/attention/internal/spec"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// Normalise normalises the columns of x [d, ld] and multiplies them by scale.
func Normalise[T tensor.Float](t *kernel.Table[T], norm spec.Norm, x []T, ld, d, n int, scale T) {
	if norm == spec.NoNorm {
		scaleColumns(t, x, ld, d, n, scale)
		return
	}
	length := scale * T(norm.MaxLen(d))
	if spec.IsCentred(norm) {
		t.Standardise(x, ld, d, n, length)
	} else {
		t.Normalise(x, ld, d, n, length)
	}
}

// normaliseGrad replaces dy, the gradient of the normalised columns of x, by the
// gradient of x. It overwrites x.
func normaliseGrad[T tensor.Float](t *kernel.Table[T], norm spec.Norm, dy, x []T, ld, d, n int, scale T) {
	if norm == spec.NoNorm {
		scaleColumns(t, dy, ld, d, n, scale)
		return
	}
	if spec.IsCentred(norm) {
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

// NormStats are what is known of the queries or keys of one head of a
// sequence. Tokens that do not exist take no part in them.
type NormStats struct {
	Mean   []float64 // that is subtracted: of each channel, or one for all; nil: none
	Length float64   // greatest 2-norm of a centred row
	Place  int       // the first token with that norm
}

// normaliseWide is normalise with statistics.
func normaliseWide[T tensor.Float](t *kernel.Table[T], norm spec.Norm, s *NormStats, x []T, ld, d, n int, scale T) {
	factor, _ := spec.InvertLength(norm, s.Length)
	if norm == spec.ChannelCentred {
		t.Centre(x, ld, d, n)
	}
	for c := range d {
		row := x[c*ld:][:n]
		var mean float64
		switch {
		case len(s.Mean) == 1:
			mean = s.Mean[0]
		case s.Mean != nil:
			mean = s.Mean[c]
		}
		for i, y := range row {
			row[i] = T((float64(y) - mean) * factor * float64(scale))
		}
	}
}

// CentreRow sets dst [D] to x [D] less its mean.
func CentreRow[T tensor.Float](dst []float64, x []T, norm spec.Norm, s *NormStats) {
	var mean float64
	switch {
	case norm == spec.ChannelCentred:
		for _, y := range x {
			mean += float64(y) - float64(x[0])
		}
		mean = mean/float64(len(x)) + float64(x[0])
	case len(s.Mean) == 1:
		mean = s.Mean[0]
	}
	for c, y := range x {
		if len(s.Mean) > 1 {
			mean = s.Mean[c]
		}
		dst[c] = float64(y) - mean
	}
}
