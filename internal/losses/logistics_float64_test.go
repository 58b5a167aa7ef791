//go:build float64

package losses

import (
	"math"
	"math/big"
	"testing"

	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// mixture draws a row of k parts whose means lie about in the range of levels.
func mixture(key rng.Key, k int, logScale float64) []float64 {
	row := make([]float64, 3*k)
	for j := range k {
		row[j] = 2 * key.Normal(uint64(j))
		row[k+j] = 0.6 * key.Fold(1).Normal(uint64(j))
		row[2*k+j] = logScale + key.Fold(2).Normal(uint64(j))
	}
	return row
}

// The levels' probabilities are all there is.
func TestLevelsShareOne(t *testing.T) {
	for i, logScale := range []float64{-9, -6, -3, 0, 3} {
		row := mixture(rng.New(uint64(i)), 4, logScale)
		var sum float64
		for l := range Levels {
			sum += math.Exp(-levelLoss(row, float32(l)))
		}
		// 256 numbers that are each known to a few roundings.
		if math.Abs(sum-1) > 256*8*0x1p-53 {
			t.Errorf("scales about e^%v: probabilities sum to %v", logScale, sum)
		}
	}
}

// bigSigma is 1/(1+e^-x) to 400 bits.
func bigSigma(x float64) *big.Float {
	const bits = 400
	// e^-x = (e^(-x/2^20))^(2^20), by its series.
	y := new(big.Float).SetPrec(bits).SetFloat64(-x)
	y.SetMantExp(y, -20)
	sum, term := big.NewFloat(1).SetPrec(bits), big.NewFloat(1).SetPrec(bits)
	for n := 1; n < 40; n++ {
		term.Mul(term, y)
		term.Quo(term, new(big.Float).SetInt64(int64(n)))
		sum.Add(sum, term)
	}
	for range 20 {
		sum.Mul(sum, sum)
	}
	sum.Add(sum, big.NewFloat(1))
	return new(big.Float).SetPrec(bits).Quo(big.NewFloat(1), sum)
}

// bigLog is the natural logarithm of a positive number.
func bigLog(x *big.Float) float64 {
	m, exp := new(big.Float), x.MantExp(nil)
	m.SetMantExp(x, -exp)
	f, _ := m.Float64()
	return math.Log(f) + float64(exp)*math.Ln2
}

// Far from a part's mean, and within a level of it, the loss equals arithmetic
// with 400 bits, where a difference of rounded distributions has no digit left.
func TestLossOfALevelIsExact(t *testing.T) {
	for _, x := range []struct{ mean, logScale float64 }{
		{0, 0}, {0.1, -3}, {-0.9, -5}, {0.99, -6.5}, {-1, -4}, {1, -7}, {3, -3}, {-5, 2}, {0.3, 9},
	} {
		for _, level := range []float32{0, 1, 17, 128, 254, 255} {
			s := math.Exp(-x.logScale)
			at := 2*float64(level)/255 - 1 - x.mean
			p := new(big.Float).SetPrec(400)
			switch level {
			case 0:
				p = bigSigma((at + 1./255) * s)
			case 255:
				p.Sub(big.NewFloat(1).SetPrec(400), bigSigma((at-1./255)*s))
			default:
				p.Sub(bigSigma((at+1./255)*s), bigSigma((at-1./255)*s))
			}
			want := -bigLog(p)
			// The edges are rounded before they are multiplied by the rate.
			if got := levelLoss([]float64{0.7, x.mean, x.logScale}, level); !(math.Abs(got-want) <= 8*0x1p-53*(1+s+want)*4) {
				t.Errorf("mean %v, scale e^%v, level %v: loss is %v, want %v", x.mean, x.logScale, level, got, want)
			}
		}
	}
}

func TestGradientOfLevels(t *testing.T) {
	const step = 1e-4
	for i, logScale := range []float64{-6, -4, -2, 0} {
		for _, level := range []float32{0, 1, 100, 254, 255} {
			row := mixture(rng.New(uint64(i+10)), 5, logScale)
			grad := append([]float64{}, row...)
			LogisticsGrad(tensor.Mat{Data: grad, Rows: 1, Cols: 15, Stride: 15}, []float32{level}, 0.5)
			for j := range row {
				start := row[j]
				at := func(x float64) float64 { row[j] = start + x*step; return levelLoss(row, level) }
				want := 0.5 * (8*(at(1)-at(-1)) - (at(2) - at(-2))) / (12 * step)
				row[j] = start
				// With scales of e^-6 the fourth power of the step is enlarged by e^24.
				if raised := j >= 10 && row[j] < minLogScale+2*step; raised {
					want = 0
				}
				if !(math.Abs(grad[j]-want) <= 1e-6*(1+math.Abs(want))) {
					t.Errorf("scales e^%v, level %v, number %d: gradient is %v, want %v", logScale, level, j, grad[j], want)
				}
			}
		}
	}
}

// A level is 2/255 wide, and its share falls with the scale where the scale is large.
func TestLossOfAWideScale(t *testing.T) {
	for _, logScale := range []float64{40, 680, 690, 730, 800, 1e6} {
		row := []float64{0, 0.5, logScale}
		want := logScale + math.Log(4) - math.Log(2./255)
		// The edges 0.72 and their multiples are rounded, and their difference is 1/92 of them.
		if got := levelLoss(row, 100); !(math.Abs(got-want) <= (4*92+4*want)*0x1p-53) {
			t.Errorf("scale e^%v: loss is %v, want %v", logScale, got, want)
		}
		LogisticsGrad(tensor.Mat{Data: row, Rows: 1, Cols: 3, Stride: 3}, []float32{100}, 1)
		if !(math.Abs(row[2]-1) <= 1e-15) {
			t.Errorf("scale e^%v: gradient is %v, want 1", logScale, row[2])
		}
	}
}

// Levels are drawn as often as their loss says.
func TestSampledLevels(t *testing.T) {
	const n = 20000
	for i, logScale := range []float64{-3, 0} {
		row := mixture(rng.New(uint64(i+20)), 3, logScale)
		var seen [Levels]int
		for s := range n {
			seen[SampleLogistics(row, rng.New(5), uint64(s))]++
		}
		// χ² over levels that are expected 10 times or more.
		var chi float64
		bins := -1
		for l, count := range seen {
			if want := n * math.Exp(-levelLoss(row, float32(l))); want >= 10 {
				chi += (float64(count) - want) * (float64(count) - want) / want
				bins++
			}
		}
		// Its mean is bins and its variance 2·bins: five deviations.
		if limit := float64(bins) + 5*math.Sqrt(2*float64(bins)); chi > limit {
			t.Errorf("scales e^%v: χ² of %d levels is %.1f, limit %.1f", logScale, bins, chi, limit)
		}
	}
}
