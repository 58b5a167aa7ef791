package engine

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// far is a number of tokens that 32 bits do not hold, nor a float32.
const far = int64(1)<<40 - 5

// aged returns a snapshot whose state says that it has absorbed far tokens. It changes
// the number before the content, which has the length of rest.
func aged(t *testing.T, data []byte, rest int) []byte {
	t.Helper()
	old := slices.Clone(data)
	binary.LittleEndian.PutUint64(old[len(old)-4-rest-8:], uint64(far))
	return seal(old)
}

// A state counts on beyond 2^40 tokens, with the same bits.
func TestStateFarOn(t *testing.T) {
	const n = 40
	c := stateCall(n, 4, 3, 16)
	for _, carry := range []attention.Carry{attention.Rounded, attention.Compensated} {
		e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
		st := statesOf(t, e, c, 1, carry)[0].(*RecurrentState)
		want, got := calltest.Poisoned(2, 6, n, 3), calltest.Poisoned(2, 6, n, 3)
		steps(t, st, want, c, 0, 20)
		data, err := st.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		head := len(states.NewSnapshot(nil, st.Engine.Identity(), 0, &st.Shape, 0, false).Data)
		restored, err := e.RestoreState(aged(t, data, len(data)-4-head))
		if err != nil {
			t.Fatal(err)
		}
		if restored.Tokens() != far {
			t.Fatalf("%d tokens restored, want %d", restored.Tokens(), far)
		}
		copy(got.Data, want.Data)
		steps(t, st, want, c, 20, n)
		steps(t, restored, got, c, 20, 21, 24, 30, n)
		if restored.Tokens() != far+20 {
			t.Errorf("%d tokens, want %d", restored.Tokens(), far+20)
		}
		if !slices.Equal(got.Data, want.Data) {
			t.Error("a state of so many tokens goes on with other bits")
		}
		if err := restored.Merge(restored.Clone()); err != nil {
			t.Fatal(err)
		}
		if restored.Tokens() != 2*(far+20) {
			t.Errorf("merged with itself it has %d tokens", restored.Tokens())
		}
		after, err := restored.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := e.RestoreState(after); err != nil || again.Tokens() != 2*(far+20) {
			t.Errorf("saved and restored again: %v", err)
		}
		// A call that begins after it sees as many keys.
		p := tokens(c, 20, n)
		p.Init, p.Final = restored, st
		var keep attention.Saved
		if err := e.Forward(got.Tokens(20, n), p, &keep); err != nil {
			t.Fatal(err)
		}
		if keep.UnseenCount != 0 || st.Tokens() != 2*(far+20)+20 {
			t.Errorf("%d queries see nothing, %d tokens after the call", keep.UnseenCount, st.Tokens())
		}
	}
}

// repeated is one token as many: a view whose tokens lie in the same place.
func repeated(n, d int) tensor.Heads {
	x := tensor.NewHeads(1, 1, 1, d)
	x.N, x.SN = n, 0
	return x
}

// Shapes whose products leave the integers are refused, and their plans are
// made in floating point.
func TestShapesBeyondIntegers(t *testing.T) {
	e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
	side := 1 << (strconv.IntSize / 2) // its square is 0
	q := repeated(side, 4)
	for want, c := range map[string]*attention.Call{
		"attn_keep: has 0 elements": {Q: q, K: q, V: q, AttnKeep: []bool{}},
		"keymask: has 0 elements":   {Q: q, K: q, V: q, KeyMask: []bool{}},
		"is beyond any memory":      {Q: repeated(math.MaxInt/3, 4), K: q, V: q},
		"rope: has 8 rows":          {Q: q, K: q, V: q, Causal: true, Rope: attention.NewRope(4, 100, far, 8)},
	} {
		if err := e.Forward(q, c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	n := min(1<<40, math.MaxInt)
	p := e.Plan(attention.Shape{B: 1, H: 4, Hkv: 4, N: n, M: n, D: 64, Dv: 64, Causal: true})
	if p.Form != attention.Linear || !(p.FLOPs > 4*float64(n)*64*64*64) || !(p.Bytes > 0 && p.Bytes < 1<<30) {
		t.Errorf("%d tokens: %v form, %g operations, %g bytes", n, p.Form, p.FLOPs, p.Bytes)
	}
	p = e.Plan(attention.Shape{B: 1, H: 1, Hkv: 1, N: n, M: n, D: 64, Dv: 64, Form: attention.Direct})
	if !(p.FLOPs > float64(n)*float64(n)*128) || !(p.Bytes > float64(n)*4*128) {
		t.Errorf("%d tokens direct: %g operations, %g bytes", n, p.FLOPs, p.Bytes)
	}
}
