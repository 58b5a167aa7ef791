package tensor_test

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/tensor"
)

// value is what bits stand for by the definition of the format.
func value(bits uint16, exponentBits int) float64 {
	fractionBits := 15 - exponentBits
	exponent := int(bits>>fractionBits) & (1<<exponentBits - 1)
	fraction := float64(bits&(1<<fractionBits-1)) / float64(int(1)<<fractionBits)
	bias := 1<<(exponentBits-1) - 1
	var x float64
	switch {
	case exponent == 1<<exponentBits-1 && fraction != 0:
		return math.NaN()
	case exponent == 1<<exponentBits-1:
		x = math.Inf(1)
	case exponent == 0:
		x = math.Ldexp(fraction, 1-bias)
	default:
		x = math.Ldexp(1+fraction, exponent-bias)
	}
	if bits>>15 == 1 {
		x = math.Copysign(x, -1)
	}
	return x
}

func TestShortRowsAreNotWidenedBehindTheirEnd(t *testing.T) {
	for name, widen := range map[string]func([]float32, []uint16){"bfloat16": tensor.WidenBFloat16, "float16": tensor.WidenFloat16} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: 3 numbers have room in 2", name)
				}
			}()
			widen(make([]float32, 2, 4), make([]uint16, 3))
		}()
	}
}

func TestSixteenBitsAreWidenedExactly(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	for _, f := range []struct {
		name         string
		widen        func([]float32, []uint16)
		exponentBits int
	}{
		{"bfloat16", tensor.WidenBFloat16, 8},
		{"float16", tensor.WidenFloat16, 5},
	} {
		got := make([]float32, len(all))
		f.widen(got, all)
		for i, x := range got {
			want := value(uint16(i), f.exponentBits)
			if math.IsNaN(want) {
				if x == x || math.Signbit(float64(x)) != (i>>15 == 1) {
					t.Errorf("%s %#04x is %v, needs to be NaN of its sign", f.name, i, x)
				}
				continue
			}
			if float64(x) != want || math.Signbit(float64(x)) != math.Signbit(want) {
				t.Errorf("%s %#04x is %v, needs to be %v", f.name, i, x, want)
			}
		}
	}
}
