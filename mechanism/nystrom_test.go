//go:build float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// nystromOf returns the mechanism of some landmarks and iterations.
func nystromOf(t *testing.T, landmarks, iterations string) attention.Mechanism {
	t.Helper()
	m, err := New("nystrom", Options{Set: map[string]string{"landmarks": landmarks, "iterations": iterations}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The pseudo-inverse of a head starts from its own matrix: a row of the batch
// that is scaled changes no bit of another.
func TestNystromStartsFromItsOwnMatrix(t *testing.T) {
	oc, _ := shape{b: 2, h: 2, hkv: 1, n: 30, m: 30, d: 8, dv: 3}.call(94)
	m := nystromOf(t, "6", "6")
	c := callIn(oc)
	before := forward(t, m, c)
	for _, x := range []tensor.Heads{c.Q, c.K} {
		for i := x.SB; i < len(x.Data); i++ {
			x.Data[i] *= 4
		}
	}
	after := forward(t, m, c)
	n := before.o.SB
	if !same(before.o.Data[:n], after.o.Data[:n]) || same(before.o.Data[n:], after.o.Data[n:]) {
		t.Error("a row of the batch depends on another, or not on itself")
	}
}

// A landmark is the mean of keys that exist; the authors' program counts zeros
// for others (form=code).
func TestNystromLandmarksLeaveMaskedKeysOut(t *testing.T) {
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 12, m: 12, d: 4, dv: 3}.call(96)
	oc.KeyMask = []bool{true, true, false, false, true, true, true, true, false, true, false, true}
	short := *oc
	short.KeyMask = nil
	short.K, short.V = tensor.NewHeads(1, 1, 8, 4), tensor.NewHeads(1, 1, 8, 3)
	at := 0
	for j, exists := range oc.KeyMask {
		if exists {
			copy(short.K.Head(0, 0).Row(at), oc.K.Head(0, 0).Row(j))
			copy(short.V.Head(0, 0).Row(at), oc.V.Head(0, 0).Row(j))
			at++
		}
	}
	m := nystromOf(t, "4", "6")
	if !same(forward(t, m, callIn(oc)).o.Data, forward(t, m, callIn(&short)).o.Data) {
		t.Error("masked keys count in the landmarks")
	}
}
