package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// directConv is the definition in float64, with the sum of the absolute terms.
func directConv(x, h tensor.Mat, d []float, b int) (y, size oracle.Mat) {
	n := x.Rows / b
	y, size = oracle.NewMat(x.Rows, x.Cols), oracle.NewMat(x.Rows, x.Cols)
	for i := range x.Rows {
		for c := range x.Cols {
			sum := float64(d[c]) * float64(x.Row(i)[c])
			all := math.Abs(sum)
			for j := range i%n + 1 {
				p := float64(h.Row(j)[c]) * float64(x.Row(i - j)[c])
				sum += p
				all += math.Abs(p)
			}
			y.Row(i)[c], size.Row(i)[c] = sum, all
		}
	}
	return y, size
}

// The transforms are exact to the last rounding, and so to float32: an error of
// float64 counts against the largest sum of terms.
func testLongConv(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 64, 65, 200} {
		const b, w = 2, 5
		s := &source{key: rng.New(81)}
		x, h, y := matrix(s, b*n, w), matrix(s, n, w), matrix(s, b*n, w)
		d := flat(matrix(s, 1, w))
		longConv(y, x, h, d, b)
		want, size := directConv(x, h, d, b)
		for i := range want.Rows {
			for c, v := range want.Row(i) {
				limit := check.UnitRoundoff[float]()*math.Abs(v) + 64*0x1p-53*check.MaxAbs(size.Data)
				if e := math.Abs(float64(y.Row(i)[c]) - v); !(e <= limit) {
					t.Errorf("%d tokens: row %d, channel %d errs by %v, %v is allowed", n, i, c, e, limit)
				}
			}
		}
		// One token after another, summed in blocks.
		for r := range b {
			steps := matrix(s, n, w)
			longSteps(steps, x.Slice(r*n, (r+1)*n), h, d)
			for i := range n {
				for c, v := range want.Row(r*n + i) {
					limit := (8 + lagBlock) * check.UnitRoundoff[float]() * size.Row(r*n + i)[c]
					if e := math.Abs(float64(steps.Row(i)[c]) - v); !(e <= limit) {
						t.Errorf("%d tokens: step %d, channel %d errs by %v, %v is allowed", n, i, c, e, limit)
					}
				}
			}
			last := matrix(s, 1, w)
			longSteps(last, x.Slice(r*n, (r+1)*n), h, d)
			if !slices.Equal(last.Row(0), steps.Row(n-1)) {
				t.Errorf("%d tokens: the last step depends on those before", n)
			}
		}
	}
}

func TestLongConvIsItsDefinition(t *testing.T) {
	t.Run(check.Precision, testLongConv)
}
