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
