package param_test

import (
	"fmt"
	"testing"

	"github.com/farfield-ml/farfield/param"
)

func ExampleSet() {
	var attn, model param.Set
	attn.New("q_proj.weight", true, 4, 4)
	model.AddPrefixed("layers.0.attn.", &attn)
	for _, p := range model.All() {
		fmt.Println(p.Name, p.Shape, len(p.Grad))
	}
	// Output: layers.0.attn.q_proj.weight [4 4] 16
}

func TestNamesAreDistinct(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a name was taken twice")
		}
	}()
	var s param.Set
	s.New("w", true, 1)
	s.New("w", true, 1)
}

func TestJoinSharesMemory(t *testing.T) {
	var a, b param.Set
	p := a.New("w", true, 2, 3)
	b.AddPrefixed("x.", &a)
	q, err := b.Get("x.w")
	if err != nil {
		t.Fatal(err)
	}
	p.Data[1], p.Grad[2] = 5, 7
	if q.Data[1] != 5 || q.Grad[2] != 7 {
		t.Error("a joined weight is a copy")
	}
	if b.Size() != 6 {
		t.Errorf("size %d, want 6", b.Size())
	}
	b.ZeroGrad()
	if p.Grad[2] != 0 {
		t.Error("the gradient is not cleared")
	}
	if _, err := b.Get("w"); err == nil {
		t.Error("the name without its prefix is found")
	}
	b.AddPrefixed("y.", nil)
	if (*param.Set)(nil).Size() != 0 {
		t.Error("no weights have a size")
	}
}
