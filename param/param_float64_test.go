//go:build float64

package param_test

import (
	"testing"

	"github.com/farfield-ml/farfield/param"
)

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
