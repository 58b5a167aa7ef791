package kernel

import (
	"math"
	"slices"
	"testing"
)

func TestAddCarry(t *testing.T) {
	t.Run("float32", func(t *testing.T) { each(t, testAddCarry[float32]) })
	t.Run("float64", func(t *testing.T) { each(t, testAddCarry[float64]) })
}

// Every implementation has the bits of pure Go, and hi is the rounded sum.
func testAddCarry[T Float](t *testing.T, k *Table[T]) {
	r, plain := source(), genericTable[T]()
	for _, n := range sizes {
		hi, lo, x := guard[T](n, 1).random(r), guard[T](n, 2), guard[T](n, 3)
		wantHi, wantLo := append([]T(nil), hi.data...), make([]T, n)
		clear(lo.data)
		for round := range 100 {
			x.random(r)
			plain.AddCarry(wantHi, wantLo, x.data)
			if before := slices.Clone(hi.data); round%2 == 0 {
				k.AddCarry(hi.data, lo.data, x.data)
			} else if k.SwapCarry(hi.data, lo.data, x.data); !same(x.data, before) {
				t.Fatalf("SwapCarry(%d) does not leave what was there", n)
			}
			if !same(hi.data, wantHi) || !same(lo.data, wantLo) {
				t.Fatalf("AddCarry(%d) differs from the plain one", n)
			}
			for i, h := range hi.data {
				if h+lo.data[i] != h {
					t.Fatalf("AddCarry(%d): %v is not the rounding of itself and %v", n, h, lo.data[i])
				}
			}
		}
		hi.intact(t, "AddCarry")
		lo.intact(t, "AddCarry")
		x.intact(t, "AddCarry")
	}
}

// A million times one third loses at most the last bit of the total.
func TestAddCarryKeepsWhatRoundingsLeaveOut(t *testing.T) {
	each(t, func(t *testing.T, k *Table[float32]) {
		const n = 1_000_000
		hi, lo, x := []float32{0}, []float32{0}, []float32{1.0 / 3}
		var single float32
		for range n {
			k.AddCarry(hi, lo, x)
			single += x[0]
		}
		want := n * float64(x[0])
		if got := float64(hi[0]) + float64(lo[0]); math.Abs(got-want) > want*0x1p-44 {
			t.Errorf("%v, want %v", got, want)
		}
		if math.Abs(float64(single)-want) < want*1e-4 {
			t.Errorf("a plain sum gives %v: the test shows nothing", single)
		}
	})
}
