package tensor_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/tensor"
)

// A projection leaves the queries of two tokens and two heads side by side;
// Split sees the heads without moving anything.
func ExampleSplit() {
	projected := []tensor.Float{
		1, 2, 3, 4, // token 0: head 0, head 1
		5, 6, 7, 8, // token 1
	}
	q := tensor.Split(projected, 1, 2, 4, 0, 2, 2)
	fmt.Println(q.Head(0, 1).Row(0), q.Head(0, 1).Row(1))
	// Output: [3 4] [7 8]
}

func TestViewsShareData(t *testing.T) {
	x := tensor.NewHeads(2, 3, 5, 4)
	for i := range x.Data {
		x.Data[i] = tensor.Float(i)
	}
	if got, want := x.Head(1, 2).Row(3)[1], tensor.Float(((1*3+2)*5+3)*4+1); got != want {
		t.Errorf("element (1,2,3,1) is %v, want %v", got, want)
	}
	part := x.Tokens(2, 5)
	if got, want := part.Head(1, 2).Row(1)[1], x.Head(1, 2).Row(3)[1]; got != want || part.N != 3 {
		t.Errorf("token 1 of the part is %v, want %v", got, want)
	}
	m := x.Head(0, 1).Slice(1, 4)
	m.Row(0)[0] = -1
	if x.Head(0, 1).Row(1)[0] != -1 {
		t.Error("a slice of rows is a copy")
	}
	if e := x.Head(0, 0).Slice(5, 5); e.Rows != 0 {
		t.Errorf("the empty slice has %d rows", e.Rows)
	}
	if e := x.Tokens(5, 5); e.N != 0 {
		t.Errorf("no tokens are %d", e.N)
	}
	for _, empty := range []tensor.Heads{tensor.NewHeads(0, 3, 5, 4), tensor.NewHeads(2, 0, 5, 4)} {
		if e := empty.Tokens(1, 3); e.N != 2 || e.Check("q") != nil {
			t.Errorf("tokens 1 and 2 of %v are %v", empty, e)
		}
	}
	if e := (tensor.Mat{Rows: 5, Stride: 8}).Slice(1, 3); e.Rows != 2 || e.Check("q") != nil {
		t.Errorf("two rows of no columns are %v", e)
	}
}

func TestCheck(t *testing.T) {
	ok := []tensor.Heads{
		tensor.NewHeads(2, 3, 5, 4),
		tensor.NewHeads(0, 3, 5, 4),
		tensor.NewHeads(2, 3, 0, 4),
		tensor.Split(make([]tensor.Float, 24), 2, 3, 4, 2, 1, 2),
	}
	for _, x := range ok {
		if err := x.Check("q"); err != nil {
			t.Errorf("%v: %v", x, err)
		}
	}
	for _, c := range []struct {
		x    tensor.Heads
		want string
	}{
		{tensor.Heads{B: -1, H: 1, N: 1, D: 1}, "negative dimension"},
		{tensor.Heads{Data: make([]tensor.Float, 9), B: 1, H: 1, N: 2, D: 5, SB: 10, SH: 10, SN: 5}, "needs 10 elements, has 9"},
		{tensor.Heads{Data: make([]tensor.Float, 9), B: 1, H: 1, N: 2, D: 2, SN: -2}, "negative stride"},
	} {
		err := c.x.Check("q")
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "q: ") {
			t.Errorf("error %v, want one about q that says %q", err, c.want)
		}
	}
}

func TestMatCheck(t *testing.T) {
	for _, x := range []tensor.Mat{tensor.NewMat(2, 3), {}, {Rows: 3}, {Data: make([]tensor.Float, 8), Rows: 2, Cols: 3, Stride: 5}} {
		if err := x.Check("a"); err != nil {
			t.Errorf("%v: %v", x, err)
		}
	}
	for want, x := range map[string]tensor.Mat{
		"a: negative dimension in [-1,2]":                                   {Rows: -1, Cols: 2},
		"a: negative stride -2":                                             {Data: make([]tensor.Float, 9), Rows: 2, Cols: 2, Stride: -2},
		"a: shape [2,3] needs 8 elements, has 7":                            {Data: make([]tensor.Float, 7), Rows: 2, Cols: 3, Stride: 5},
		"a: shape [1,3] needs 3 elements, has 0":                            {Rows: 1, Cols: 3},
		fmt.Sprintf("a: shape [3,3] needs %d elements, has 9", math.MaxInt): {Data: make([]tensor.Float, 9), Rows: 3, Cols: 3, Stride: math.MaxInt},
	} {
		if err := x.Check("a"); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestSizesBeyondIntegers(t *testing.T) {
	for _, x := range []struct {
		dims []int
		want int
	}{
		{nil, 1}, {[]int{3, 5, 0}, 0}, {[]int{3, 5, 7}, 105}, {[]int{math.MaxInt, 1}, math.MaxInt},
		{[]int{math.MaxInt, 2}, math.MaxInt}, {[]int{math.MaxInt, math.MaxInt, 0}, 0}, {[]int{1 << 20, 1 << 20, 1 << 20, 1 << 20}, math.MaxInt},
	} {
		if got := tensor.Size(x.dims...); got != x.want {
			t.Errorf("size of %v is %d, want %d", x.dims, got, x.want)
		}
	}
	x := tensor.NewHeads(2, 2, 2, 2)
	for want, change := range map[string]func(x *tensor.Heads){
		"beyond any memory":                             func(x *tensor.Heads) { x.B, x.SB = math.MaxInt/4, 0 },
		fmt.Sprintf("needs %d elements", math.MaxInt):   func(x *tensor.Heads) { x.SN = math.MaxInt },
		fmt.Sprintf("%d elements, has 16", math.MaxInt): func(x *tensor.Heads) { x.N, x.SN = 3, math.MaxInt/2+1 },
	} {
		y := x
		change(&y)
		if err := y.Check("x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("heads beyond any memory are made")
		}
	}()
	tensor.NewHeads(1<<20, 1<<20, 1<<20, 1<<20)
}
