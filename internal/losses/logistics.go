package losses

import (
	"math"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// A mixture of K discretised logistics (Salimans et al. 2017, PixelCNN++, arXiv
// 1701.05517, section 2.1) gives a probability to each level 0 ≤ l < Levels. A row holds 3·K
// numbers: the logits of the K parts, their means, and the logarithms of their scales. Level l
// lies at x = 2l/(Levels-1) - 1. Its probability in a part is the mass of the logistic within
// 1/(Levels-1) of x; the first and the last level also get all mass beyond them. Logarithms of
// scales below minLogScale count as minLogScale.
const (
	// Levels is the number of levels that a mixture of logistics distinguishes.
	Levels = 256

	halfLevel   = 1. / (Levels - 1)
	minLogScale = -7

	nearEdges  = 0x1p-30   // below this share of an edge, the difference of edges has lost digits
	smallWidth = 0x1p-1000 // below this, the difference of edges has lost digits

	logisticsWork = 256 // cost of a part in operations
)

// Logistics sets losses[i] to -log of the probability that the mixture of row i of y
// [rows,3·K] gives to levels[i], in nats. K is the number of logistics. Rows whose level is NaN
// do not count: their loss is 0. No probability is rounded to 0 before its logarithm is taken.
func Logistics(losses []float64, y tensor.Mat, levels []float32) {
	par.Run(y.Rows, pieceRows, logisticsWork*float64(y.Rows)*float64(y.Cols/3), logistics{losses, y, levels})
}

type logistics struct {
	losses []float64
	y      tensor.Mat
	levels []float32
}

func (f *logistics) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		f.losses[i] = 0
		if l := f.levels[i]; l == l {
			row := f.y.Row(i)
			all, joint := partSums(row, l)
			f.losses[i] = all.logTotal() - joint.logTotal()
		}
	}
}

// LogisticsGrad overwrites y [rows,3·K] with scale times the gradient of its Logistics, 0 in
// rows whose level is NaN. The logarithm of a scale below the least one has gradient 0.
func LogisticsGrad(y tensor.Mat, levels []float32, scale tensor.Float) {
	par.Run(y.Rows, pieceRows, 2*logisticsWork*float64(y.Rows)*float64(y.Cols/3), logisticsGrad{y, levels, scale})
}

type logisticsGrad struct {
	y      tensor.Mat
	levels []float32
	scale  tensor.Float
}

func (f *logisticsGrad) RunRange(i0, i1 int) {
	for i := i0; i < i1; i++ {
		row, l := f.y.Row(i), f.levels[i]
		if l != l {
			clear(row)
			continue
		}
		all, joint := partSums(row, l)
		k, c := len(row)/3, float64(f.scale)
		for j := range k {
			p, logit := partOf(row, j, l), float64(row[j])
			log, dmean, dscale := p.logShare()
			share := math.Exp(logit + log - joint.logTotal())
			row[j] = tensor.Float(c * (math.Exp(logit-all.logTotal()) - share))
			row[k+j] = tensor.Float(-c * share * dmean)
			row[2*k+j] = tensor.Float(-c * share * dscale)
		}
	}
}

// partSums returns the sums over the parts of their weights, and of their weights times
// their probabilities of a level.
func partSums(row []tensor.Float, level float32) (all, joint logSum) {
	all, joint = noSum, noSum
	for j := range len(row) / 3 {
		p := partOf(row, j, level)
		log, _, _ := p.logShare()
		all.addExp(float64(row[j]))
		joint.addExp(float64(row[j]) + log)
	}
	return all, joint
}

// logSum is e^largest·sum.
type logSum struct{ largest, sum float64 }

var noSum = logSum{largest: math.Inf(-1)}

// addExp adds e^x.
func (s *logSum) addExp(x float64) {
	if x <= s.largest {
		s.sum += math.Exp(x - s.largest)
		return
	}
	s.sum = s.sum*math.Exp(s.largest-x) + 1
	s.largest = x
}

func (s *logSum) logTotal() float64 { return s.largest + math.Log(s.sum) }

// mixturePart holds the edges of a level relative to a logistic, in units of its scale.
type mixturePart struct {
	lo, hi      float64 // of the level
	rate        float64 // 1/scale
	logScale    float64 // at least minLogScale
	first, last bool    // the level has no lower edge, or no upper one
	raised      bool    // the scale was raised to the least one
}

func partOf(row []tensor.Float, j int, level float32) mixturePart {
	k := len(row) / 3
	mean, log := float64(row[k+j]), float64(row[2*k+j])
	p := mixturePart{first: level == 0, last: level == Levels-1, raised: log < minLogScale}
	p.logScale = max(log, minLogScale)
	p.rate = math.Exp(-p.logScale)
	away := 2*halfLevel*float64(level) - 1 - mean
	p.lo, p.hi = (away-halfLevel)*p.rate, (away+halfLevel)*p.rate
	return p
}

// logShare returns the logarithm of the probability of the level in the part, and its
// derivatives by the mean and by the logarithm of the scale. With σ(x) = 1/(1+e^-x),
// σ(hi)-σ(lo) is σ(hi)·σ(-lo)·(1-e^(lo-hi)), which avoids subtracting nearly equal numbers. If
// lo and hi are nearly equal, or nearly 0 because the scale is large, hi-lo is computed as
// 2·halfLevel over the scale.
func (p *mixturePart) logShare() (log, dmean, dscale float64) {
	above, below := Logistic(-p.hi), Logistic(p.lo)
	switch {
	case p.first:
		log, dmean, dscale = -Softplus(-p.hi), -above, -p.hi*above
	case p.last:
		log, dmean, dscale = -Softplus(p.lo), below, p.lo*below
	default:
		d := p.hi - p.lo
		if d < nearEdges*math.Abs(p.lo) {
			d = 2 * halfLevel * p.rate
		}
		inner, slope := math.Log(-math.Expm1(-d)), d/math.Expm1(d)
		if d < smallWidth {
			inner, slope = math.Log(2*halfLevel)-p.logScale, 1
		}
		log = inner - Softplus(-p.hi) - Softplus(p.lo)
		dmean = below - above
		dscale = p.lo*below - p.hi*above - slope
	}
	if p.raised {
		dscale = 0
	}
	return log, p.rate * dmean, dscale
}

// SampleLogistics draws a level from the mixture of a row [3·K], with the random numbers 2i and
// 2i+1 of key.
func SampleLogistics(row []tensor.Float, key rng.Key, i uint64) int32 {
	k := len(row) / 3
	all := noSum
	for _, logit := range row[:k] {
		all.addExp(float64(logit))
	}
	total := all.logTotal()
	u, j := key.Float64(2*i), 0
	for ; j < k-1; j++ {
		if u -= math.Exp(float64(row[j]) - total); u < 0 {
			break
		}
	}
	// Uniform within (0,1), both ends left out.
	v := (float64(key.Uint64(2*i+1)>>12) + 0.5) * 0x1p-52
	x := float64(row[k+j]) + math.Exp(max(float64(row[2*k+j]), minLogScale))*(math.Log(v)-math.Log1p(-v))
	return int32(math.Round((min(max(x, -1), 1) + 1) / (2 * halfLevel)))
}
