package nn

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
)

// A frozen layer has the bits of the layer it was made from.
func TestPackedLinearHasTheBitsOfTheLayer(t *testing.T) {
	t.Run(check.Precision, testPackedLinear)
}

func testPackedLinear(t *testing.T) {
	s := &source{key: rng.New(4)}
	fill := func(p *param.Param) *param.Param {
		for i := range p.Data {
			p.Data[i] = float(s.normal())
		}
		return p
	}
	var set param.Set
	// The last is large enough for several threads.
	for _, size := range [][2]int{{5, 3}, {64, 401}, {70, 40}, {1100, 1000}} {
		out, in := size[0], size[1]
		set = param.Set{}
		l := Linear{W: fill(set.New("w", true, out, in)), B: fill(set.New("b", false, out))}
		for _, rows := range []int{1, 2, 3, GEMVRows, GEMVRows + 1, 30, rowTile + 9} {
			w := l.Freeze(rows)
			for _, acc := range []bool{false, true} {
				x, y := matrix(s, rows, in), matrix(s, rows, out)
				want := matrix(s, rows, out)
				for i := range rows {
					copy(want.Row(i), y.Row(i))
				}
				l.Forward(want, x, acc)
				w.Forward(y, x, acc)
				for i := range rows {
					for j, got := range y.Row(i) {
						if got != want.Row(i)[j] {
							t.Fatalf("[%d,%d], row %d of %d, acc %t: column %d is %v, not %v", out, in, i, rows, acc, j, got, want.Row(i)[j])
						}
					}
				}
			}
		}
	}
}
