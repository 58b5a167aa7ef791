package factorised

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
)

func benchmarkMechanism(b *testing.B, name string) attention.Mechanism {
	m := calltest.Textbook[name]
	e, err := New(attention.Spec{Name: name, Norm: attention.Norm(m.Norm), Scale: m.Scale, Exp: m.Exp, Coef: m.Coef, Positive: true})
	if err != nil {
		b.Fatal(err)
	}
	return e
}
